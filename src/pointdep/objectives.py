"""The objectives, for anyone who has a score matrix; see `pointdep.core.objectives`."""

from pointdep.core.objectives import *  # noqa: F403
from pointdep.core.objectives import __all__  # noqa: F401
