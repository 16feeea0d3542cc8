"""Find out which pipelines execute a database, wherever they run: they say so in `<db>.control`.

A pipeline that leads beats there every 250 ms while somebody follows, and every ten seconds when it
is alone; one that follows speaks every second. Reading is all that this needs, so whoever may read
the topic learns the same, from any machine. Pipelines of 0.1.0 that are alone say nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from streamydb.errors import RecordError
from streamydb.kafka.creation import log_id
from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import TopicReader
from streamydb.records.control import Beat, Following, LeaderClaim, Message, decode_message

__all__ = ["PRESENT_S", "Seen", "heard", "seen"]

PRESENT_S: Final = 30.0
"""For how long a pipeline counts as running after it was heard: three beats of one that is alone.
"""

_WINDOW_RECORDS: Final = 2_000


class Seen(msgspec.Struct, frozen=True, kw_only=True):
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

    def __str__(self) -> str:
        """Return a line for people."""
        who = self.name or f"without a name (checkpoint {self.pipeline[:8]})"
        state = self.role if self.role == "leading" or self.ready else f"{self.role}, not ready"
        return f"{who}, {state}, epoch {self.epoch}, heard {self.age_s:.1f} s ago"


def heard(said: Iterable[tuple[int, Message]], log: str, now_ms: int) -> list[Seen]:
    """Return who was heard in the last `PRESENT_S`, the leader first.

    Args:
        said: messages of the control topic in order, each with its append time.
        log: Kafka's id of the log; messages about an earlier log of that name do not count.
        now_ms: the time.
    """
    last: dict[str, Seen] = {}
    newest = 0
    for append_ms, message in said:
        if message.log != log or not isinstance(message, LeaderClaim | Beat | Following):
            continue
        age_s = max(0, now_ms - append_ms) / 1000
        leads = not isinstance(message, Following)
        newest = max(newest, message.epoch if leads else 0)
        last[message.pipeline] = Seen(
            name=message.name, pipeline=message.pipeline, epoch=message.epoch, age_s=age_s,
            role="leading" if leads else "following",
            resolved=getattr(message, "resolved", 0), ready=getattr(message, "ready", leads),
        )  # fmt: skip
    present = [one for one in last.values() if one.age_s <= PRESENT_S]
    deposed = [one for one in present if one.role == "leading" and one.epoch < newest]
    told = [one for one in present if one not in deposed]
    return sorted(told, key=lambda one: (one.role != "leading", one.name, one.pipeline))


def seen(connection: Mapping[str, str], database: str) -> list[Seen]:
    """Read the end of the control topic: who was heard lately.

    Raises:
        ReadingError: Kafka does not answer, this user may not read the topic, or there is none.
        TopicsError: Kafka does not answer.
    """
    said: list[tuple[int, Message]] = []
    with TopicReader(connection, TopicNames(database).control) as reader:
        for record in reader.last(_WINDOW_RECORDS):
            try:
                said.append((record.timestamp()[1], decode_message(record.value())))
            except RecordError:
                continue
    return heard(said, log_id(connection, database), time.time_ns() // 1_000_000)
