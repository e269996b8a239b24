"""Each operation on one image, (c, h, w) in float64, as plainly as can be: the reference."""

import colorsys
import itertools
import math

import numpy as np
import torch
from torch.nn import functional as F


def resized_crop(image, top, left, rows, columns):
    box = image[:, int(top) : int(top + rows), int(left) : int(left + columns)]
    one = torch.from_numpy(box.copy())[None]
    return F.interpolate(one, size=image.shape[1:], mode="bilinear", align_corners=False)[0].numpy()


def flip(image, flipped):
    return image[:, :, ::-1] if flipped else image


def reflect_translate(image, down, right):
    _, height, width = image.shape
    border = 2 + int(max(abs(down), abs(right)))
    padded = np.pad(image, ((0, 0), (border, border), (border, border)), mode="reflect")
    top, left = border - int(down), border - int(right)
    return padded[:, top : top + height, left : left + width]


def luma(red, green, blue):
    return 0.2989 * red + 0.587 * green + 0.114 * blue


def grey_plane(image):
    _, height, width = image.shape
    return np.array([[luma(*image[:, i, j]) for j in range(width)] for i in range(height)])


def blend(image, other, factor):
    return np.clip(factor * image + (1 - factor) * other, 0, 1)


def hue_shifted(image, shift):
    out = np.empty_like(image)
    for i, j in np.ndindex(image.shape[1:]):
        hue, saturation, value = colorsys.rgb_to_hsv(*image[:, i, j])
        out[:, i, j] = colorsys.hsv_to_rgb((hue + shift) % 1.0, saturation, value)
    return out


def colour_jitter(image, applied, brightness, contrast, saturation, hue):
    if not applied:
        return image
    image = blend(image, 0.0, brightness)
    image = blend(image, grey_plane(image).mean(), contrast)
    image = blend(image, grey_plane(image), saturation)
    return hue_shifted(image, hue)


def grey(image, applied):
    return np.stack([grey_plane(image)] * 3) if applied else image


def blur(image, applied, sigma, radius):
    if not applied:
        return image
    channels, height, width = image.shape
    steps = range(-radius, radius + 1)
    places = itertools.product(steps, steps)
    weight = {(a, b): math.exp(-(a * a + b * b) / (2 * sigma * sigma)) for a, b in places}
    total = sum(weight.values())
    padded = np.pad(image, ((0, 0), (radius, radius), (radius, radius)), mode="reflect")
    out = np.zeros_like(image)
    for c, i, j in itertools.product(range(channels), range(height), range(width)):
        for (a, b), w in weight.items():
            out[c, i, j] += w / total * padded[c, i + a + radius, j + b + radius]
    return out


def normalise(image, mean, std):
    return np.stack([(image[c] - mean[c]) / std[c] for c in range(len(mean))])


def crop_box(height, width, scale, ratio, numbers):
    """Top, left, height and width of one random box, try after try."""
    for _ in range(10):
        area = height * width * numbers.uniform(*scale)
        shape = math.exp(numbers.uniform(math.log(ratio[0]), math.log(ratio[1])))
        columns, rows = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < columns <= width and 0 < rows <= height:
            top = numbers.randint(0, height - rows)
            return top, numbers.randint(0, width - columns), rows, columns
    if width / height < ratio[0]:
        rows, columns = round(width / ratio[0]), width
    elif width / height > ratio[1]:
        rows, columns = height, round(height * ratio[1])
    else:
        rows, columns = height, width
    return (height - rows) // 2, (width - columns) // 2, rows, columns
