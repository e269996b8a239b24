"""Images with labels, MNIST, CIFAR-10 and small digits, decoded once to uint8 tensors."""

from pointdep.data.images.datasets import DATASETS, default_folder, digit_halves, load_images
from pointdep.data.images.image_set import ImageSet

__all__ = ["DATASETS", "ImageSet", "default_folder", "digit_halves", "load_images"]
