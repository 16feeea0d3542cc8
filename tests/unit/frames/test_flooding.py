"""Keys and ids that a client has made to have one public hash, or one place by it, cost no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from streamydb.frames import interning
from streamydb.frames.hashing import FACTOR, KEY_SEED, SEED, hash_ragged
from streamydb.frames.table import Ragged, Texts
from streamydb.planner import conflicts

MANY = 400
PLACES = 1024
PRIVATE = [0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x2545F4914F6CDD1D]
"""Numbers as a process might draw them."""


class Counting(np.ndarray[Any, Any]):
    """A table that counts how often somebody looks into it."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)


def counting(value: int, kind: Any) -> Counting:
    return np.full(PLACES, value, kind).view(Counting)


def python(kernel: Any) -> Any:
    """The kernel's own code, not compiled."""
    return getattr(kernel, "py_func", kernel)


def alike(count: int) -> Ragged:
    """Different keys of 16 bytes with one public hash: the second word undoes the first."""
    constants = (0xBF58476D1CE4E5B9, 30), (0x94D049BB133111EB, 27)
    first = np.arange(count, dtype=np.uint64)
    h = first ^ np.uint64((KEY_SEED ^ 16 * 0x9E3779B97F4A7C15) % 2**64)
    for factor, shift in constants:
        h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
    h = (h ^ (h >> np.uint64(31))) * np.uint64(0xD6E8FEB86659FD93)
    words = np.stack([first, h ^ np.uint64(12345)], 1)
    return Ragged.of([row.tobytes() for row in words])


def one_place() -> npt.NDArray[np.uint64]:
    """Different hashes whose lower halves are one."""
    return np.arange(MANY, dtype=np.uint64) << np.uint64(32)


def looks_by_hash(hashes: npt.NDArray[np.uint64], factor: int) -> int:
    table = counting(0xFFFFFFFF, np.uint64)
    slot, first, at = np.empty(MANY, np.int64), np.empty(MANY, np.int64), np.zeros(3, np.int64)
    with np.errstate(over="ignore"):
        python(interning._slots)(hashes, np.uint64(factor), table, slot, first, at)
    assert slot.tolist() == list(range(MANY))
    return table.looks


def looks_by_text(hashes: npt.NDArray[np.uint64], keys: Texts) -> int:
    table = counting(-1, np.int32)
    slot, first, at = np.empty(MANY, np.int64), np.empty(MANY, np.int64), np.zeros(2, np.int64)
    python(interning._texts)(hashes, keys, table, slot, first, at)
    assert slot.tolist() == list(range(MANY))
    return table.looks


def looks_for_ids(ids: npt.NDArray[np.uint64], factor: int) -> int:
    table, earlier = counting(-1, np.int32), np.full(MANY, 9, np.int64)
    with np.errstate(over="ignore"):
        python(conflicts._enter)(ids, np.ones(MANY, np.bool_), np.uint64(factor), table, earlier)
    assert set(earlier.tolist()) == {-1}
    return table.looks


def test_hashes_of_one_place_are_found_at_once() -> None:
    hashes = one_place()
    assert looks_by_hash(hashes, 1) > MANY * MANY / 3, "nothing is private"
    assert looks_for_ids(hashes, 1) > MANY * MANY / 3
    for factor in PRIVATE:
        assert looks_by_hash(hashes, factor) < 6 * MANY
        assert looks_for_ids(hashes, factor) < 12 * MANY


def test_keys_of_one_hash_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = alike(MANY)
    public = hash_ragged(keys)
    assert len(set(public.tolist())) == 1
    assert looks_by_text(public, keys.texts()) > MANY * MANY / 3
    for seed in PRIVATE:
        assert looks_by_text(hash_ragged(keys, seed), keys.texts()) < 3 * MANY
    used: list[npt.NDArray[np.uint64]] = []
    exactly = interning._exactly

    def noted(hashes: npt.NDArray[np.uint64], texts: Texts) -> Any:
        used.append(hashes)
        return exactly(hashes, texts)

    monkeypatch.setattr(interning, "_exactly", noted)
    slot, first = interning.intern(public, keys)
    assert slot.tolist() == first.tolist() == list(range(MANY))
    assert len(set(used[0].tolist())) == MANY
    assert used[0].tolist() == hash_ragged(keys, int(SEED)).tolist()
    assert FACTOR & np.uint64(1), "a product with an odd number keeps different hashes apart"


def test_no_slot_depends_on_what_is_private() -> None:
    """Tables grow several times; some keys come again, some have one public hash."""
    texts = [b"%d" % (i * i % 4099) for i in range(9_000)] + alike(3_000).tolist() * 2
    keys = Ragged.of(texts)
    numbers: dict[bytes, int] = {}
    wanted = [numbers.setdefault(text, len(numbers)) for text in texts]
    public = hash_ragged(keys)
    last: dict[int, int] = {}
    earlier = []
    for i, hash_ in enumerate(public.tolist()):
        earlier.append(last.get(hash_, -1))
        last[hash_] = i
    every = np.ones(len(public), np.bool_)
    by_hash = set()
    for private in PRIVATE:
        slot, first = interning._exactly(hash_ragged(keys, private), keys.texts())
        assert slot.tolist() == wanted
        assert first.tolist() == [texts.index(text) for text in numbers]
        by_hash.add(str(interning._by_hash(np.unique(public), np.uint64(private))[0].tolist()))
        assert conflicts._earlier(public, every, np.uint64(private)).tolist() == earlier
    assert len(by_hash) == 1
