"""What results depend on beside their settings."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

import pointdep


def environment(device: str) -> dict[str, Any]:
    """Versions, the name of the device, and the number of threads."""
    import scipy
    import sklearn
    import torch

    on_gpu = device.startswith("cuda")
    return {
        "versions": {
            "pointdep": pointdep.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "device": torch.cuda.get_device_name(device) if on_gpu else platform.machine(),
        "threads": torch.get_num_threads(),
    }
