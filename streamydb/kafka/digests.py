"""Read the last digests that pipelines have told in `<db>.digests`, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from streamydb.frames.digest import teller_of
from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import TopicReader
from streamydb.records.formats import UNREADABLE

_WINDOW_RECORDS: Final = 2_000


class ToldDigest(msgspec.Struct, frozen=True, kw_only=True):
    """The digest that one pipeline has told."""

    pipeline: str
    """The incarnation of its checkpoint."""
    state: str
    outcomes: str


class ShardDigests(msgspec.Struct, frozen=True, kw_only=True):
    """The digests of one shard at one seq; they are alike, or a pipeline is wrong."""

    seq: int
    shard: int
    told: list[ToldDigest]


class _Record(msgspec.Struct):
    """The fields of a digest record that are shown."""

    seq: int
    shard: int
    state: str
    outcomes: str


def beside(records: Iterable[tuple[bytes, bytes]], most: int) -> list[ShardDigests]:
    """Return the digests of the last `most` pairs of seq and shard, the newest first.

    One of a history that the log has lost does not stand beside those of the present one.

    Args:
        records: keys and values of the topic, in order.
        most: bounds the answer.
    """
    by_shard: dict[tuple[int, int], dict[str, ToldDigest]] = {}
    times: dict[tuple[int, int], int] = {}
    for key, value in records:
        try:
            digest = msgspec.json.decode(value, type=_Record)
        except UNREADABLE:
            continue
        teller, at = teller_of(key), (digest.seq, digest.shard)
        pipeline_digest = ToldDigest(
            pipeline=teller.pipeline, state=digest.state, outcomes=digest.outcomes
        )
        if teller.ts_ms is not None and times.setdefault(at, teller.ts_ms) != teller.ts_ms:
            del by_shard[at]
            times[at] = teller.ts_ms
        by_shard.setdefault(at, {})[teller.pipeline] = pipeline_digest
    newest = sorted(by_shard, key=lambda pair: (-pair[0], pair[1]))[:most]
    return [
        ShardDigests(seq=seq, shard=shard, told=list(by_shard[seq, shard].values()))
        for seq, shard in newest
    ]


def last_digests(connection: Mapping[str, str], database: str, most: int) -> list[ShardDigests]:
    """Read the end of the topic.
    Raises ReadingError: Kafka does not answer, this user may not read the topic, or there is none.
    """
    with TopicReader(connection, TopicNames(database).digests) as reader:
        last = reader.last(_WINDOW_RECORDS)
        return beside(((record.key() or b"", record.value() or b"") for record in last), most)
