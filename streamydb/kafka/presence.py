"""Find out which pipelines execute a database, wherever they run: they say so in `<db>.control`.

A pipeline that leads beats there every 250 ms while somebody follows, and every ten seconds when it
is alone; one that follows speaks every second. Reading is all that this needs, so whoever may read
the topic learns the same, from any machine.

Brokers stamp what is said, and this machine's clock may differ from theirs. So by times alone
nobody counts as silent: one that should have spoken is listened for, as long as a beat may take.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec
from confluent_kafka import Message as Record

from streamydb.errors import RecordError
from streamydb.kafka.creation import log_id
from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import TopicReader
from streamydb.records.control import (
    Beat,
    Following,
    LeaderClaim,
    Message,
    decode_message,
    owner_of,
)
from streamydb.records.gears import GearStatus

PRESENT_S: Final = 30.0
"""For how long a pipeline counts as running after it was heard: three beats of one that is alone.
"""

_WINDOW_RECORDS: Final = 2_000
_LISTEN_S: Final = 12.0  # a pipeline that is alone beats within so many seconds
_DOUBT_S: Final = 3_600.0
"""Who was silent for longer, by the clocks, does not run: no clock is so far ahead."""


class PresentPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline that was heard lately."""

    name: str
    """What people call it; empty: it has no name."""
    pipeline: str
    """The incarnation of its checkpoint."""
    role: str
    """leading or following."""
    epoch: int
    resolved: int
    """The last seq whose outputs it has written; of one that follows: that its state has."""
    ready: bool
    """It leads, or could take over at once."""
    age_s: float
    """Seconds since it was heard, by Kafka's clock and this machine's."""
    gear: GearStatus | None = None
    """Which of its gears leads; None: it has not told. A real-time gear is heard by itself, too."""

    def __str__(self) -> str:
        who = self.name or f"without a name (checkpoint {self.pipeline[:8]})"
        state = self.role if self.role == "leading" or self.ready else f"{self.role}, not ready"
        gear = "" if self.gear is None else f", gear {self.gear.gear}"
        return f"{who}, {state}, epoch {self.epoch}{gear}, heard {self.age_s:.1f} s ago"


def heard(said: Iterable[tuple[int, Message]], log: str, now_ms: int) -> list[PresentPipeline]:
    """Return who was heard in the last `PRESENT_S`, the leader first.

    Args:
        said: messages of the control topic in order, each with its append time.
        log: Kafka's id of the log; messages about an earlier log of that name do not count.
        now_ms: the time; what was said up to `PRESENT_S` after it was said just now.
    """
    last, newest = _last(said, log, now_ms)
    pipelines = [
        msgspec.structs.replace(one, age_s=max(0.0, one.age_s))
        for one in last
        if abs(one.age_s) <= PRESENT_S and not _is_deposed(one, newest)
    ]
    return sorted(pipelines, key=lambda one: (one.role != "leading", one.name, one.pipeline))


def doubtful(said: Iterable[tuple[int, Message]], log: str, now_ms: int) -> set[str]:
    """Return the pipelines that may run though they were not heard: a clock may be wrong."""
    last, newest = _last(said, log, now_ms)
    silent = [one for one in last if abs(one.age_s) > PRESENT_S and one.age_s <= _DOUBT_S]
    return {one.pipeline for one in silent if not _is_deposed(one, newest)}


def _last(
    said: Iterable[tuple[int, Message]], log: str, now_ms: int
) -> tuple[list[PresentPipeline], int]:
    """Return the last word of each pipeline, with an age below zero if that lies ahead, and the
    highest epoch that anybody led in.
    """
    last: dict[str, PresentPipeline] = {}
    claimed: dict[int, str] = {}
    newest = 0
    for append_ms, message in said:
        if message.log != log or not isinstance(message, LeaderClaim | Beat | Following):
            continue
        if isinstance(message, LeaderClaim):
            holder = claimed.setdefault(message.epoch, message.pipeline)
            if holder != message.pipeline:  # the first claim of an epoch holds
                continue
        leads, before = not isinstance(message, Following), last.get(message.pipeline)
        newest = max(newest, message.epoch if leads else 0)
        last[message.pipeline] = PresentPipeline(
            name=message.name, pipeline=message.pipeline, epoch=message.epoch,
            age_s=(now_ms - append_ms) / 1000, role="leading" if leads else "following",
            resolved=getattr(message, "resolved", 0), ready=getattr(message, "ready", leads),
            gear=getattr(message, "gear", None) or (None if before is None else before.gear),
        )  # fmt: skip
    return [*last.values()], newest


def _is_deposed(one: PresentPipeline, newest: int) -> bool:
    return one.role == "leading" and one.epoch < newest


def seen(
    connection: Mapping[str, str], database: str, own: Collection[str] = ()
) -> list[PresentPipeline]:
    """Read the end of the control topic: who was heard lately.

    It listens for some seconds if a pipeline was silent by the clocks, and may be speaking all the
    same.

    ``own``: pipelines that the caller knows about; they are not listened for.
    Raises ReadingError: Kafka does not answer, this user may not read the topic, or there is none.
    """
    log = log_id(connection, database)
    with TopicReader(connection, TopicNames(database).control) as reader:
        said = _messages(reader.last(_WINDOW_RECORDS))
        now_ms, begun_s = _now_ms(), time.monotonic()
        missed = {one for one in doubtful(said, log, now_ms) if owner_of(one) not in own}
        while missed and time.monotonic() < begun_s + _LISTEN_S:
            later = _messages(reader.batch())
            missed -= {message.pipeline for _, message in later}
            said += [(now_ms + _since_ms(begun_s), message) for _, message in later]
    # The clock may have been set while it listened.
    return heard(said, log, now_ms + _since_ms(begun_s))


def _messages(records: Iterable[Record]) -> list[tuple[int, Message]]:
    said: list[tuple[int, Message]] = []
    for record in records:
        try:
            said.append((record.timestamp()[1], decode_message(record.value())))
        except RecordError:
            continue
    return said


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _since_ms(begun_s: float) -> int:
    return round(1000 * (time.monotonic() - begun_s))
