"""Damaged files, models, indices and checkpoints: `make fuzz` does the same with 20,000 of each."""

import random
import subprocess
import sys
from pathlib import Path

from fuzz.mutator import edit_json, mutate


def test_damaged_inputs_are_read_or_refused():
    """In a process without threads, whose children may die."""
    command = [sys.executable, "-m", "fuzz", "--cases", "300"]
    how = {"cwd": Path(__file__).parents[1], "capture_output": True, "text": True}
    ended = subprocess.run(command, check=False, **how)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_seed_says_all_of_the_damage():
    content = b"\x93NUMPY {'shape': (40, 2)} " + bytes(range(256))
    first, again = (
        [mutate(content, [content], random.Random(k)) for k in range(300)] for _ in "ab"
    )
    assert first == again
    assert sum(one != content for one in first) > 280
    assert {len(one) < len(content) for one in first} == {True, False}
    nest = {"a": [1, {"b": 2.5}], "c": "text"}
    edited = [str(edit_json(nest, random.Random(k))) for k in range(300)]
    assert len({*edited, str(nest)}) > 50
    assert str(nest) == "{'a': [1, {'b': 2.5}], 'c': 'text'}"
