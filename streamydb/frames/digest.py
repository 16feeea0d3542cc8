"""Digests of a shard's state at every k-th seq, by which two pipelines notice that they differ.

The digest of a state is a sum, modulo 2^128 in two lanes, over its keys of a hash of (key, version,
value): an incremental multiset hash (Clarke et al., 2003, the additive variant). A write adds the
hash of what it leaves and takes away that of what it met, so the digest follows from the writes
alone, whatever the order between keys and wherever micro-batches end. What a write *met* comes from
the state as it is stored; so a stored value that was damaged shows up at the next interval after
somebody writes its key, and a stored state can be held against its own digest (an audit).

It finds damage and faults of ours, not forgeries: the hash has no secret.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.frames import program as p
from streamydb.frames.hashing import hash_ragged, hash_span, mix
from streamydb.frames.jit import inlined, kernel, leaf
from streamydb.frames.table import Bytes, Ragged, Texts
from streamydb.frames.value_rows import WrittenValues

Ints = npt.NDArray[np.int64]
Lanes = npt.NDArray[np.uint64]

_KEY_SEED: Final = 0x8EBC6AF09C88C6E3
_RESULT_SEED: Final = 0x1D8E4E27C47D124F
_PLAIN: Final = b'"status":"committed","reads":{},"failed":[],"code":null'
_MASK: Final = (1 << 64) - 1
_PARTS: Final = 4


class StateDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shard's state at ``seq``, and its outcomes since the digest before.

    ``state``: 32 hex digits over keys, versions and values. ``outcomes``: 16 hex digits over the
    results of the transactions at home in the shard that read or aborted. ``shards``: how many
    there are; digests of other divisions cannot be compared, only their sums over all shards.
    """

    seq: int
    shard: int
    interval: int
    state: str
    outcomes: str
    shards: int = 0


class Teller(NamedTuple):
    """The pipeline that has told a digest, and the history of which it is.

    A log that has lost its end gives seqs again. ``ts_ms``: the commit timestamp of the digest's
    seq, which another history has at another time; None: digests of releases before this one do not
    say it.
    """

    pipeline: str
    ts_ms: int | None

    def key(self, digest: StateDigest) -> bytes:
        parts = [digest.shard, digest.seq, *([] if self.ts_ms is None else [self.ts_ms])]
        return "/".join(map(str, [*parts, self.pipeline])).encode()


def teller_of(key: bytes | None) -> Teller:
    parts = (key or b"").decode("utf-8", "replace").split("/")
    is_known = len(parts) == _PARTS and parts[-2].isdecimal()
    return Teller(parts[-1], int(parts[-2]) if is_known else None)


class DigestState(msgspec.Struct):
    """The part of a shard's state that belongs to its digests.

    ``low``, ``high``: the digest at the end of interval ``told``. ``open``: of each later interval,
    the sums so far (low, high, outcomes), each modulo 2^64.
    """

    interval: int
    told: int = 0
    low: int = 0
    high: int = 0
    open: dict[int, tuple[int, int, int]] = {}


@inlined
def _low(key: np.uint64, version: int, value: np.uint64) -> np.uint64:
    return mix(mix(key ^ np.uint64(version) * np.uint64(0x9E3779B97F4A7C15)) ^ value)


@inlined
def _high(key: np.uint64, version: int, value: np.uint64) -> np.uint64:
    return mix(mix(value + np.uint64(version) * np.uint64(0xC2B2AE3D27D4EB4F)) + key)


@inlined
def _value(tag: int, number: int, texts: Texts, at: int) -> np.uint64:
    if tag == p.INT:
        return mix(np.uint64(number) ^ np.uint64(0xE7037ED1A0B428DB))
    start, end = texts.offsets[at], texts.offsets[at + 1]
    if tag == p.EXPIRING:
        mixed_end = mix(np.uint64(number) ^ np.uint64(0xA0761D6478BD642F))
        return mix(mixed_end + hash_span(texts.data, start, end, np.uint64(0x589965CC75374CC3)))
    return hash_span(texts.data, start, end, np.uint64(0x589965CC75374CC3))


@kernel
def _items(key: Lanes, tag: Bytes, number: Ints, version: Ints, texts: Texts) -> Lanes:
    out = np.zeros((len(key), 2), np.uint64)
    for i in range(len(key)):
        if tag[i] != p.ABSENT:
            value = _value(tag[i], number[i], texts, i)
            out[i, 0] = _low(key[i], version[i], value)
            out[i, 1] = _high(key[i], version[i], value)
    return out


def item_lanes(items: WrittenValues) -> Lanes:
    """Return the amount that each item adds to a digest; shape (n, 2), zero where the key is
    absent.
    """
    return _items(
        _keys(items.key),
        np.ascontiguousarray(items.tag),
        np.ascontiguousarray(items.number),
        np.ascontiguousarray(items.version),
        items.text.texts(),
    )


def _keys(keys: Ragged) -> Lanes:
    return hash_ragged(keys, _KEY_SEED)


class _LastWrites(NamedTuple):
    """Hash of the key, version before the first write, and shard of each slot; whether it was seen,
    and the amount that its value adds to the digest.
    """

    key: Lanes
    met: Ints
    home: Ints
    seen: npt.NDArray[np.bool_]
    last: Lanes


@leaf
def _deltas(
    writes: Any, seq: Ints, slots: _LastWrites, texts: Texts, first: int, interval: int, out: Lanes
) -> None:
    key, last, seen = slots.key, slots.last, slots.seen
    interval_number, end = 0, (first + 1) * interval
    for w in writes:
        s = w["slot"]
        if not seen[s]:
            seen[s] = True
            tag, ref = w["before_tag"], w["before_ref"]
            if tag != p.ABSENT:
                value = _value(tag, w["before_number"], texts, ref)
                last[s, 0] = _low(key[s], slots.met[s], value)
                last[s, 1] = _high(key[s], slots.met[s], value)
        at = seq[w["txn"]]
        if at > end or at <= end - interval:
            interval_number = (at - 1) // interval - first
            end = (first + interval_number + 1) * interval
        low = high = np.uint64(0)
        tag, ref = w["after_tag"], w["after_ref"]
        if tag != p.ABSENT:
            value = _value(tag, w["after_number"], texts, ref)
            low, high = _low(key[s], at, value), _high(key[s], at, value)
        out[slots.home[s], interval_number, 0] += low - last[s, 0]
        out[slots.home[s], interval_number, 1] += high - last[s, 1]
        last[s, 0], last[s, 1] = low, high


def write_deltas(
    writes: npt.NDArray[Any],
    seqs: Ints,
    keys: Ragged,
    met: Ints,
    home: Ints,
    pool: Ragged,
    interval: int,
    shards: int,
) -> tuple[int, Lanes]:
    """Return by how much writes change the digest of each shard.

    ``writes``: dtype WRITE (`program`), those of one slot in order. ``met``: the slots' versions
    before the first write. ``pool``: the texts that the writes refer to.

    Returns:
        The number of the first interval (from 0), and shape (shards, intervals, 2).
    """
    if not len(writes):
        return 0, np.zeros((shards, 0, 2), np.uint64)
    first, last = (int(seqs[0]) - 1) // interval, (int(seqs[-1]) - 1) // interval
    out = np.zeros((shards, last - first + 1, 2), np.uint64)
    if len(pool) == 0:
        pool = Ragged.empty(1)
    seen, amounts = np.zeros(len(keys), np.bool_), np.zeros((len(keys), 2), np.uint64)
    slots = _LastWrites(_keys(keys), np.ascontiguousarray(met), home, seen, amounts)
    _deltas(writes, np.ascontiguousarray(seqs), slots, pool.texts(), first, interval, out)
    return first, out


def outcome_sums(seqs: Ints, results: Ragged, interval: int) -> dict[int, int]:
    """Return the sum of the results of each interval (by number, from 0).

    Plain commits are left out: some come with a result and some do not, as the executor had it.
    """
    sums: dict[int, int] = {}
    if not len(seqs):
        return sums
    hashes = hash_ragged(results, _RESULT_SEED).tolist()
    for seq, value, result in zip(seqs.tolist(), hashes, results.tolist(), strict=True):
        if _PLAIN in result:
            continue
        intervals = (seq - 1) // interval
        sums[intervals] = (sums.get(intervals, 0) + value) & _MASK
    return sums


def total(state: DigestState) -> tuple[int, int]:
    """The digest of everything that was folded in, whole intervals or not."""
    low = state.low + sum(entry[0] for entry in state.open.values())
    high = state.high + sum(entry[1] for entry in state.open.values())
    return low & _MASK, high & _MASK


def fold(state: DigestState, place: int, low: int, high: int, outcomes: int = 0) -> None:
    """Add sums to the interval numbered ``place`` (from 0); if that was published, to the base."""
    if place < state.told:
        state.low, state.high = (state.low + low) & _MASK, (state.high + high) & _MASK
        return
    sums = state.open.get(place, (0, 0, 0))
    state.open[place] = (
        (sums[0] + low) & _MASK,
        (sums[1] + high) & _MASK,
        (sums[2] + outcomes) & _MASK,
    )


def close(state: DigestState, shard: int, resolved: int, shards: int = 1) -> list[StateDigest]:
    """The digests of the intervals that end at or before ``resolved``, which are over."""
    digests = []
    while (state.told + 1) * state.interval <= resolved:
        low, high, outcomes = state.open.pop(state.told, (0, 0, 0))
        state.low, state.high = (state.low + low) & _MASK, (state.high + high) & _MASK
        state.told += 1
        seq = state.told * state.interval
        text = f"{state.high:016x}{state.low:016x}"
        digests.append(StateDigest(seq, shard, state.interval, text, f"{outcomes:016x}", shards))
    return digests
