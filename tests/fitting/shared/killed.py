"""``pointdep fit`` of which one process is killed: run by torchrun with a folder and the arguments.

Process 1 ends itself with SIGKILL at the end of epoch 2, in the first attempt alone. What the
second attempt goes on from is copied to ``kept`` before it starts.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

from pointdep.cli.app import run
from pointdep.fitting import engine

EPOCH = 2


def main(folder: Path, arguments: list[str]) -> int:
    engine._CHECKPOINT_EVERY_S = 0.0
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if rank == 0 and attempt == 1:
        shutil.copy(folder / "state", folder / "kept")
    judge = engine.Engine._judge

    def die_after(self: engine.Engine, state: engine.TrainingState, *rest: object) -> None:
        judge(self, state, *rest)
        if state.epoch == EPOCH and rank == 1 and attempt == 0:
            (folder / "dead").write_text(f"{rank} {state.epoch}")
            os.kill(os.getpid(), signal.SIGKILL)

    engine.Engine._judge = die_after
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
