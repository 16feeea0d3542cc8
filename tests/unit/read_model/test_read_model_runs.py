"""Runs of sorted parts against a dictionary: whatever is added, merged and left out in between."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from streamydb.frames.table import Bytes
from streamydb.read_model import runs as module
from streamydb.read_model.lookup import (
    NONE,
    earliest_ends,
    find,
    find_each,
    found_many,
    gathered,
    is_current,
)
from streamydb.read_model.merging import sorted_rows
from streamydb.read_model.rows import Ints, Row, pack_row
from streamydb.read_model.runs import Runs
from streamydb.read_model.scanning import advanced, heads_at
from tests.support.read_model import Held, held, nothing_superfluous, small_parts
from tests.support.seeds import seeds

SPARE = bytes(8)


class Versions:
    """Runs, and the truth: every version that was added.

    Attributes:
        runs: what is tested.
        rows: all that was added.
        horizon: the oldest seq that is asked for.
    """

    def __init__(self, rng: random.Random) -> None:
        """Begin empty."""
        self.rng = rng
        self.runs = Runs([], 1)
        self.rows: list[Row] = []
        self.horizon = 0
        self.seq = 0
        self.keys = [b"k", b"k\x00", b"z" * 300]
        self.keys += [b"k%d" % i for i in range(rng.choice([1, 3, 40]))]

    def add(self, count: int) -> int:
        """Write some keys, each of them with a seq of its own; how many bytes."""
        made = []
        for _ in range(count):
            self.seq += self.rng.choice([1, 1, 2])
            value = b"" if self.rng.random() < 0.3 else b"%d" % self.seq
            key = self.rng.choice(self.keys)
            end = self.rng.choice([0, 0, self.seq + 1000]) if value else 0
            made.append(Row(key, self.seq, self.seq // 3, b"t%d" % self.seq, value, end))
        self.rng.shuffle(made)
        self.rows += made
        placed = held(made)
        self.runs.add(sorted_rows(placed.rows))
        return sum(len(pack_row(*row)) for row in made)

    def at(self, seq: int) -> dict[bytes, Row]:
        """What exists at a seq."""
        newest: dict[bytes, Row] = {}
        for row in self.rows:
            if row.seq <= seq and (row.key not in newest or newest[row.key].seq < row.seq):
                newest[row.key] = row
        return {key: row for key, row in newest.items() if row.value}

    def needed(self) -> set[tuple[bytes, int]]:
        """The versions that a snapshot at or after the horizon can show."""
        base = {key: row.seq for key, row in self.at(self.horizon).items()}
        return {
            (row.key, row.seq)
            for row in self.rows
            if row.seq > self.horizon or base.get(row.key) == row.seq
        }

    def stored(self) -> list[list[Row]]:
        """What is stored, run by run."""
        return [Held([], module._rows(run)).read(module._rows(run)) for run in self.runs.runs]

    def check(self) -> None:
        """Compare them in every way there is to read, and look at their order."""
        stored = self.stored()
        above: dict[bytes, int] = {}
        for run in reversed(stored):
            names = [(row.key, -row.seq) for row in run]
            assert names == sorted(set(names))
            for row in run:
                assert row.seq < above.get(row.key, row.seq + 1), "newer ones lie above"
            for row in run:
                above[row.key] = row.seq
        kept = {(row.key, row.seq) for run in stored for row in run}
        assert self.needed() <= kept <= {(row.key, row.seq) for row in self.rows}
        for seq in {self.horizon, self.seq, self.rng.randint(self.horizon, self.seq)}:
            self.check_at(seq)

    def scan(self, first: bytes, stop: bytes, seq: int, limit: int) -> Ints:
        """Rows between two keys, in steps of any size."""
        view, bounds, out = self.runs.view(), first + stop + SPARE, np.empty(limit, np.int64)
        heads, more = heads_at(view, bounds, len(first), seq)
        n = 0
        assert more
        while more:
            keys = self.rng.choice([1, 2, 10, 1 << 40])
            before, lengths = n, (len(first), len(stop))
            n, more = advanced(view, heads, bounds, lengths, out, (seq, n, keys))
            assert n - before <= keys
        return out[:n]

    def check_at(self, seq: int) -> None:
        """Compare what is read at a seq."""
        view, truth, rng = self.runs.view(), self.at(seq), self.rng
        first, stop = sorted([rng.choice(self.keys), rng.choice([*self.keys, b""])])
        limit = rng.choice([1, 3, 1000])
        data, numbers, told = gathered(self.scan(first, stop, seq, limit), True)
        expected = sorted(k for k in truth if k >= first and (not stop or k < stop))[:limit]
        assert read(data, numbers) == [
            (key, *truth[key][1:3], truth[key].value) for key in expected
        ]
        check_ends(told, [truth[key].expires_ms for key in expected])
        asked = rng.sample(self.keys, min(3, len(self.keys)))
        ends = np.cumsum([len(key) for key in asked])
        values, found, told = found_many(view, b"".join(asked) + SPARE, ends, seq)
        assert [int(n) for n in found[:, 2]] == [
            truth[key].seq if key in truth else NONE for key in asked
        ]
        assert values.tobytes() == b"".join(truth[key].value for key in asked if key in truth)
        check_ends(told, [truth[key].expires_ms if key in truth else 0 for key in asked])
        for key in asked:
            row, length, start, found_seq, ts_ms, end = find(view, key + SPARE, len(key), seq)
            exists = row != NONE and start < length
            assert exists == (key in truth)
            assert not exists or (found_seq, ts_ms) == truth[key][1:3]
            assert not exists or end == truth[key].expires_ms
        earliest = min((row.expires_ms for row in truth.values() if row.expires_ms), default=NONE)
        cut = rng.randint(0, 3)
        number = int(view[1 + view[0]])
        halves = np.array_split(np.arange(number, dtype=np.int64), [min(cut, number)])
        found = np.concatenate([earliest_ends(view, half, seq) for half in halves])
        assert min((end for end in found[:, 0].tolist() if end != NONE), default=NONE) == earliest
        for part, (end, i) in enumerate(found.tolist()):
            assert end == NONE or is_current(view, part, i, seq)
        newer = held([row for row in self.rows if row.seq > self.horizon])
        assert newer.read(find_each(view, newer.rows)) == newer.read(newer.rows)
        strange = held([row._replace(seq=10**9) for row in self.rows[:5]])
        assert (find_each(view, strange.rows) == NONE).all()


def check_ends(told: Ints, expected: list[int]) -> None:
    """Nothing is told if there are none."""
    assert told.tolist() == (expected if any(expected) else [])


def read(data: Bytes, numbers: Ints) -> list[tuple[bytes, int, int, bytes]]:
    """What a scan has found."""
    texts, start, found = data.tobytes(), 0, []
    for key_end, end, seq, ts_ms in numbers.tolist():
        found.append((texts[start:key_end], seq, ts_ms, texts[key_end:end]))
        start = end
    return found


@pytest.mark.parametrize("seed", range(seeds(40, 12)))
def test_what_is_added_is_found_until_no_snapshot_shows_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"runs {seed}")
    small_parts(monkeypatch, rng)
    versions = Versions(rng)
    for _ in range(25):
        added = versions.add(rng.choice([1, 2, 10, 60]))
        if rng.random() < 0.6:
            versions.horizon = rng.randint(versions.horizon, versions.seq)
        resolved = rng.choice([versions.seq, rng.randint(versions.horizon, versions.seq)])
        versions.runs.settle(versions.horizon, added, resolved, hurry=rng.random() < 0.4)
        versions.check()
    while versions.runs.settle(versions.horizon, 0, versions.seq):
        continue
    versions.check()
    for older, newer in pairwise(versions.runs.runs):
        assert newer["length"].sum() * module.RATIO <= older["length"].sum()


@pytest.mark.parametrize(("hurry", "unresolved"), [(True, 0), (False, 1)])
def test_nothing_is_merged_in_a_hurry_or_before_it_is_resolved_until_there_are_many_runs(
    hurry: bool,  # noqa: FBT001 - a parameter
    unresolved: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing_superfluous(monkeypatch)
    monkeypatch.setattr(module, "RUNS_MAX", 3)
    versions = Versions(random.Random("many runs"))
    counts = []
    for _ in range(8):
        added = versions.add(10)
        resolved = versions.seq - unresolved
        more = versions.runs.settle(versions.horizon, added, resolved, hurry=hurry)
        counts.append(len(versions.runs.runs))
        assert more == (hurry and counts[-1] > 1)
        versions.check()
    assert counts == [1, 2, 3, 1, 2, 3, 1, 2]
    assert not versions.runs.settle(versions.horizon, 0, versions.seq)
    assert len(versions.runs.runs) == 1


@pytest.mark.parametrize("seed", range(10))
def test_a_commit_merges_a_bounded_amount(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"bounded {seed}")
    monkeypatch.setattr(module, "PART_BYTES", 400)
    monkeypatch.setattr(module, "STEP_BYTES", 3_000)
    monkeypatch.setattr(module, "COMMIT_BYTES", 6_000)
    merged: list[int] = []
    merge = Runs._merge

    def noted(runs: Runs, step: module._Merge, horizon: int) -> int:
        size = merge(runs, step, horizon)
        merged[-1] += size
        return size

    monkeypatch.setattr(Runs, "_merge", noted)
    versions = Versions(rng)
    versions.keys = [b"key/%d" % i for i in range(3_000)]
    for _ in range(60):
        merged.append(0)
        added = versions.add(40)
        versions.runs.settle(versions.horizon, added, versions.seq)
        assert merged[-1] <= max(6_000, module.COMMIT_RATIO * added) + 6_000
    assert sum(merged) > 0
    assert len(versions.runs.runs) < 6
