"""The expected digests, summed up from the whole state at each interval's end, key by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from streamydb.frames import program as p
from streamydb.frames.digest import StateDigest, item_lanes, teller_of
from streamydb.frames.hashing import shard_of
from streamydb.frames.json_tokens import parse_ints
from streamydb.frames.shards import ShardConfig
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import WrittenValues
from streamydb.records.expiry import end_of, ending
from streamydb.verify.oracle.outputs import OutputRecord

__all__ = ["state_digest", "wrong_digests"]

State = dict[bytes, tuple[bytes, int]]
_MASK = (1 << 64) - 1


def wrong_digests(
    records: Iterable[tuple[bytes | None, bytes | None]],
    outputs: Sequence[OutputRecord],
    last: int,
    config: ShardConfig,
) -> str | None:
    """Hold digest records against the expected outputs; what is wrong, if anything."""
    found: dict[tuple[int, int], bytes] = {}
    times = _times(outputs)
    for key, value in records:
        digest = msgspec.json.decode(value or b"", type=StateDigest)
        place = digest.seq, digest.shard
        ts_ms = teller_of(key).ts_ms
        if ts_ms != times.get(digest.seq, ts_ms) or ts_ms is None:
            return f"the digest {key!r} is of a seq of {times.get(digest.seq)} ms"
        if found.setdefault(place, value or b"") != value:
            return f"two digests at {place}: {found[place]!r} and {value!r}"
    expected = _expected(outputs, last, config)
    shown = {place: msgspec.json.decode(v, type=StateDigest).state for place, v in found.items()}
    if shown != expected:
        wrong = [p for p in sorted({*shown, *expected}) if shown.get(p) != expected.get(p)]
        detail = [(p, shown.get(p), expected.get(p)) for p in wrong[:3]]
        return f"digests differ (seq and shard, found, expected): {detail}"
    return None


def _times(outputs: Sequence[OutputRecord]) -> dict[int, int]:
    """The commit timestamps of transactions that repeat none, by seq."""
    results = [
        msgspec.json.decode(output.value or b"{}")
        for output in outputs
        if output.topic == "results"
    ]
    return {found["seq"]: found["ts_ms"] for found in results if "duplicate" not in found}


def _expected(
    outputs: Sequence[OutputRecord], last: int, config: ShardConfig
) -> dict[tuple[int, int], str]:
    """The digest of each shard's state at each interval's end."""
    writes = []
    for output in outputs:
        if output.topic == "changes" and output.value is not None and output.key is not None:
            change = msgspec.json.decode(output.value)
            after = bytes(msgspec.json.decode(output.value, type=_After).after)
            value = None if change["op"] == "d" else ending(after, change.get("expires_ms"))
            writes.append((change["source"]["seq"], output.key, value))
    states: list[State] = [{} for _ in range(config.shards)]
    digests = [state_digest(state) for state in states]
    expected, at = {}, 0
    for end in range(config.digest_interval, last + 1, config.digest_interval):
        written = set()
        while at < len(writes) and writes[at][0] <= end:
            seq, key, value = writes[at]
            shard = shard_of(key, config.shards)
            states[shard].pop(key, None)
            if value is not None:
                states[shard][key] = value, seq
            written.add(shard)
            at += 1
        for shard in written:
            digests[shard] = state_digest(states[shard])
        expected.update({(end, shard): digest for shard, digest in enumerate(digests)})
    return expected


class _After(msgspec.Struct):
    after: msgspec.Raw


def state_digest(state: Mapping[bytes, tuple[bytes, int]]) -> str:
    """The digest of keys with their values (canonical JSON) and versions, one by one."""
    if not state:
        return "0" * 32
    texts = Ragged.of([value for value, _ in state.values()])
    tags, numbers = parse_ints(texts.data, texts.offsets)
    ends = [end_of(value) for value, _ in state.values()]
    for row, end in enumerate(ends):
        if end is not None:
            tags[row], numbers[row] = p.EXPIRING, end
    versions = np.array([version for _, version in state.values()], np.int64)
    keys = Ragged.of(list(state))
    items = WrittenValues(tags, numbers, versions, keys, texts)
    low, high = item_lanes(items).sum(axis=0, dtype=np.uint64).tolist()
    return f"{high & _MASK:016x}{low & _MASK:016x}"
