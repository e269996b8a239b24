"""A stand-in for tensors on a device that is not here."""

from __future__ import annotations

import torch


class OnApple(torch.Tensor):
    """Features on a device without float64, as far as this machine can tell."""

    @property
    def device(self):
        return torch.device("mps")

    def double(self):
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")

    def cpu(self):
        return self.as_subclass(torch.Tensor)
