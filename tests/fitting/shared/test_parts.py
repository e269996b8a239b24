"""Several readers of stored rows: each reads a part, and together they know what one knows."""

import threading
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep.data.row_source import ArrayRows
from pointdep.data.stored_pairs import PairSource
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
    inner = [cut for cut in sorted(set(cuts)) if cut < rows]
    made = np.array([0, *inner, rows]) if cuts else None
    bounds = [0, *sorted(round(edge * rows) for edge in edges), rows]
    every = []
    for start, stop in pairwise(bounds):
        x, y = Counted(rows, made), Counted(rows)
        chunks = PairSource(x, y).shuffled(
            size, np.random.default_rng(seed), part=slice(start, stop)
        )
        numbers = [n for chunk in chunks for n in chunk.numbers.tolist()]
        assert len(numbers) == stop - start
        assert sorted(x.seen) == sorted(y.seen) == sorted(numbers)
        every += numbers
    assert sorted(every) == list(range(rows))


@given(count=st.integers(0, 1000), size=st.integers(1, 9))
def test_shares_of_a_row_of_things(count, size):
    every = [Processes(rank, size) for rank in range(size)]
    taken = [i for one in every for i in range(count)[one.own(count)]]
    assert taken == list(range(count))
    assert every[0].sizes(count) == [len(range(count)[one.own(count)]) for one in every]
    assert max(every[0].sizes(count)) - min(every[0].sizes(count)) <= 1


@pytest.mark.parametrize("limit", [1 << 18, 100])
def test_copies_counted_in_parts(limit, monkeypatch):
    from pointdep.fitting import data_flags

    monkeypatch.setattr(data_flags, "_MOST", limit)
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.integers(0, 300, (2000, 1)).astype(float))
    y = torch.from_numpy(random.integers(0, 2, (2000, 1)).astype(float))
    whole, parts = CopyCount(), [CopyCount(), CopyCount(), CopyCount()]
    whole.add(x, y)
    for number, (part, a, b) in enumerate(zip(parts, x.split(700), y.split(700), strict=True)):
        part.add(a, b, 700 * number)
    for other in parts[1:]:
        parts[0].merge(other)
    merged = parts[0]
    assert (merged.rows, merged.digest) == (whole.rows, whole.digest)
    for ours, theirs in ((merged.x, whole.x), (merged.y, whole.y), (merged.pairs, whole.pairs)):
        assert ours.limit == theirs.limit
        assert sorted(ours.keys) == sorted(theirs.keys)


class TestMeeting:
    """Processes of one attempt agree on a name, whatever is left of those before."""

    def met(self, store, size, order):
        names, threads = {}, []
        for rank in order:
            work = threading.Thread(
                target=lambda rank=rank: names.update({rank: agree(store, rank, size)})
            )
            work.start()
            threads.append(work)
        for work in threads:
            work.join(20)
        return names

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
    def test_again_and_again(self, order):
        store = dist.HashStore()
        seen = set()
        for size in (3, 3, 2, 3):
            names = self.met(store, size, [rank for rank in order if rank < size])
            assert len(names) == size
            assert len(set(names.values())) == 1
            seen |= set(names.values())
        assert len(seen) == 4

    def test_one_that_comes_late(self):
        """The first finds a process of the attempt before in its place."""
        store = dist.HashStore()
        self.met(store, 2, (0, 1))
        names = {}
        early = threading.Thread(target=lambda: names.update({0: agree(store, 0, 2)}))
        early.start()
        early.join(0.3)
        assert not names
        names[1] = agree(store, 1, 2)
        early.join(20)
        assert names[0] == names[1]
