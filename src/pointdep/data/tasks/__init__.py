"""Reference tasks whose mutual information and pointwise mutual information are known exactly."""

from __future__ import annotations

from pointdep.data.tasks.continuous import Joint, Task, correlated_gaussians
from pointdep.data.tasks.discrete import discrete_table, table_pmi
from pointdep.data.tasks.registry import QUICK, TASKS, TaskKind, make_task

__all__ = [
    "QUICK",
    "TASKS",
    "Joint",
    "Task",
    "TaskKind",
    "correlated_gaussians",
    "discrete_table",
    "make_task",
    "table_pmi",
]
