"""Images with labels, MNIST, CIFAR-10 and small digits, decoded once to uint8 tensors."""

from __future__ import annotations

from pointdep.data.images.image_set import ImageSet
from pointdep.data.images.loading import DATASETS, default_folder, load_images

__all__ = ["DATASETS", "ImageSet", "default_folder", "load_images"]
