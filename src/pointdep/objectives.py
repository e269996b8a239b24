"""The objectives, for anyone who has a score matrix; see `pointdep.core.objectives`."""

from pointdep.core.objectives import (
    cpc,
    dm1,
    dm2,
    drf,
    dv,
    dv_moving_average,
    js,
    nwj,
    pc,
    rpc,
    smile_bound,
    squared_loss_mi,
)

__all__ = [
    "cpc",
    "dm1",
    "dm2",
    "drf",
    "dv",
    "dv_moving_average",
    "js",
    "nwj",
    "pc",
    "rpc",
    "smile_bound",
    "squared_loss_mi",
]
