"""Several readers of stored rows: each reads a part, and together they know what one knows."""

from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep.data.row_source import ArrayRows
from pointdep.data.stored_pairs import PairSource
from pointdep.fitting import data_flags
from pointdep.fitting.data_flags import CopyCount
from pointdep.fitting.processes import Processes
from pointdep.fitting.rendezvous import agree


class Counted(ArrayRows):
    """Knows which rows were read, and may have cuts as shards do."""

    def __init__(self, rows, cuts=None):
        super().__init__(np.arange(float(rows))[:, None], ("0",))
        self.cuts, self.seen = cuts, []

    def read(self, start, stop, step):
        for piece in super().read(start, stop, step):
            self.seen += piece[:, 0].astype(int).tolist()
            yield piece


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(10, 3000),
    cuts=st.lists(st.integers(1, 2999), max_size=8),
    edges=st.lists(st.floats(0.0, 1.0), max_size=4),
    size=st.integers(1, 900),
    seed=st.integers(0, 5),
)
def test_parts_of_a_shuffle(rows, cuts, edges, size, seed):
    """They are disjoint, they are everything, and a part reads no rows but its own."""
    made = np.array([0, *[cut for cut in sorted(set(cuts)) if cut < rows], rows]) if cuts else None
    bounds, every = [0, *sorted(round(edge * rows) for edge in edges), rows], []
    for start, stop in pairwise(bounds):
        x, y, random = Counted(rows, made), Counted(rows), np.random.default_rng(seed)
        chunks = PairSource(x, y).shuffled(size, random, part=slice(start, stop))
        numbers = [n for chunk in chunks for n in chunk.numbers.tolist()]
        assert len(numbers) == stop - start
        assert sorted(x.seen) == sorted(y.seen) == sorted(numbers)
        every += numbers
    assert sorted(every) == list(range(rows))


@given(count=st.integers(0, 1000), size=st.integers(1, 9))
def test_shares_of_a_row_of_things(count, size):
    every = [Processes(rank, size) for rank in range(size)]
    assert [i for one in every for i in range(count)[one.own(count)]] == list(range(count))
    assert every[0].sizes(count) == [len(range(count)[one.own(count)]) for one in every]
    assert max(every[0].sizes(count)) - min(every[0].sizes(count)) <= 1


@pytest.mark.parametrize("limit", [1 << 18, 100])
def test_copies_counted_in_parts(limit, monkeypatch):
    monkeypatch.setattr(data_flags, "_MOST", limit)
    random = np.random.default_rng(0)
    x, y = (torch.from_numpy(random.integers(0, n, (2000, 1)).astype(float)) for n in (300, 2))
    whole, parts = CopyCount(), [CopyCount(), CopyCount(), CopyCount()]
    whole.add(x, y)
    for number, (part, a, b) in enumerate(zip(parts, x.split(700), y.split(700), strict=True)):
        part.add(a, b, 700 * number)
    for other in parts[1:]:
        parts[0].merge(other)
    merged = parts[0]
    assert (merged.rows, merged.digest) == (whole.rows, whole.digest)
    for ours, theirs in ((merged.x, whole.x), (merged.y, whole.y), (merged.pairs, whole.pairs)):
        assert (ours.limit, sorted(ours.keys)) == (theirs.limit, sorted(theirs.keys))


class TestMeeting:
    """Processes of one attempt agree on a name, whatever is left of those before."""

    def met(self, store, size, order):
        with ThreadPoolExecutor(size) as pool:
            asked = {rank: pool.submit(agree, store, rank, size) for rank in order}
            return {rank: work.result(20) for rank, work in asked.items()}

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
    def test_again_and_again(self, order):
        store, seen = dist.HashStore(), set()
        for size in (3, 3, 2, 3):
            names = self.met(store, size, [rank for rank in order if rank < size])
            assert len(names) == size
            (name,) = set(names.values())
            seen.add(name)
        assert len(seen) == 4

    def test_one_that_comes_late(self):
        """The first finds a process of the attempt before in its place."""
        store = dist.HashStore()
        self.met(store, 2, (0, 1))
        with ThreadPoolExecutor(1) as pool:
            early = pool.submit(agree, store, 0, 2)
            assert not wait([early], 0.3).done
            assert agree(store, 1, 2) == early.result(20)
