"""Damaged inputs, thousands per process, and what became of each.

Every case runs in a child of this process, which may die: then the next child goes on behind it.
"""

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random

from fuzz.targets import TARGETS
from pointdep.errors import PointdepError

SECONDS, BYTES = 10, 2 << 30
_HUNG = 300  # seconds by the clock, for a case that waits for something
_FAULTS = ("traceback", "signal", "slow", "large", "changed", "long")
OUTCOMES = ("same", "other", "refused", *_FAULTS)
"""same: as the sound input answers; other: something else, for rows and where digests were forged;
long: a message that is no single line of at most 1,000 characters."""


def _peak():
    """Bytes of main memory that this process has held at most."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used


def _outcome(target, sound, place, case, seed, answers):
    """(outcome, what to tell of it) of one case."""
    random = Random(f"{seed} {case}")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    promised = target.damage(sound, place, random)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # processor time; both end the process
    signal.setitimer(signal.ITIMER_REAL, _HUNG)
    try:
        answer = target.read(place, case)
    except PointdepError as error:
        said = str(error)
        return ("long" if "\n" in said or len(said) > 1000 else "refused"), said[:200]
    except BaseException:
        return "traceback", traceback.format_exc(limit=-3)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    if not isinstance(answer, tuple | bytes):
        return "other", ""
    same = answer in answers
    return ("same" if same else "changed" if promised else "other"), ""


def _sound_answers(target, sound, place):
    """What the sound inputs answer, of those targets whose answers are compared."""
    if target.damage.__name__ == "_damaged_file":
        return []
    answers = []
    for one in sorted(sound.iterdir()):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(one if one.is_dir() else sound, place)
        if one.is_dir():
            (place / "sound").write_text(one.name)
        answers.append(target.read(place, 0))
    return answers


def _child(target, folder, cases, seed, pipe):
    """Run cases until the memory of one was too large, and tell of each in a line."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = _sound_answers(target, folder / "sound", folder / "place")
    for case in cases:
        os.write(pipe, f"{case}\n".encode())
        found = _outcome(target, folder / "sound", folder / "place", case, seed, answers)
        if _peak() > BYTES:
            found = "large", f"{_peak() >> 20} MiB, {found}"
        os.write(pipe, json.dumps(found).encode() + b"\n")
        if found[0] == "large":
            break
    os._exit(0)


def _start(target, folder, cases, seed):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            _child(target, folder, cases, seed, writer)
        except BaseException:
            os.write(writer, json.dumps(["traceback", traceback.format_exc()]).encode() + b"\n")
        finally:
            os._exit(1)
    os.close(writer)
    return child, os.fdopen(reader)


def sweep(name, count, seed=0):
    """Counter of outcomes of `count` cases, and (case, outcome, what was told) of the faults."""
    target, found, faults = TARGETS[name], Counter(), []
    root = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=root, prefix="pointdep-fuzz-") as scratch:
        folder = Path(scratch)
        (folder / "sound").mkdir()
        making = os.fork()  # a child too: this process stays without threads
        if making == 0:
            warnings.simplefilter("ignore")
            target.make(folder / "sound")
            os._exit(0)
        assert os.waitpid(making, 0)[1] == 0, f"{name}: the sound inputs were not made"
        done = 0
        while done < count:
            child, lines = _start(target, folder, range(done, count), seed)
            case = done
            for line in lines:
                if line[0] != "[":
                    case = int(line)
                    continue
                outcome, said = json.loads(line)
                found[outcome] += 1
                done = case + 1
                if outcome in _FAULTS:
                    faults.append((case, outcome, said))
            status = os.waitpid(child, 0)[1]
            if os.WIFSIGNALED(status):
                number = os.WTERMSIG(status)
                timed = number in (signal.SIGPROF, signal.SIGALRM)
                outcome = "slow" if timed else "signal"
                found[outcome] += 1
                faults.append((case, outcome, signal.Signals(number).name))
                done = case + 1
            elif done <= case and status:
                raise RuntimeError(
                    f"{name}: the child ended with {status} in case {case}: {faults}"
                )
    return found, faults


def table(results):
    """The outcomes of all targets as text."""
    head = f"{'':<12}" + "".join(f"{name:>10}" for name in ("cases", *OUTCOMES))
    lines = [
        f"{name:<12}{sum(found.values()):>10}" + "".join(f"{found[o]:>10}" for o in OUTCOMES)
        for name, found in results.items()
    ]
    return "\n".join([head, *lines])
