"""Where a run trains."""

import logging
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from pointdep.contrastive.pretraining.step import make_fabric, share_statistics
from pointdep.errors import InputError


@pytest.mark.parametrize(("ranks", "device"), [(1, "cuda"), (2, "cpu"), (2, "cuda")])
def test_batch_norm_is_shared_by_several_gpus(ranks, device):
    module = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3)))
    weight = module[1][0].weight
    share_statistics(module, SimpleNamespace(world_size=ranks, device=torch.device(device)))
    shared = (ranks, device) == (2, "cuda")
    assert isinstance(module[1][0], nn.SyncBatchNorm) == shared
    assert module[1][0].weight is weight


def test_what_others_log_is_left_as_it_was():
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("fabric", "pytorch")]
    make_fabric("cpu", "32")
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    make_fabric("cpu", "bf16")
    assert [logger.level for logger in loggers] == [logging.DEBUG] * 2
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def test_half_precision_needs_a_gpu():
    with pytest.raises(InputError, match="needs a GPU"):
        make_fabric("cpu", "16")
