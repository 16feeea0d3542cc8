"""A planned hand-over: ask for it, and see that it happens."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from streamydb.errors import StreamyError
from streamydb.standby.kafka import SharedTopics
from streamydb.standby.messages import Beat, Claim, Following, Handover, Message
from streamydb.topics import TopicNames, log_id
from streamydb.topics.creation import existing

__all__ = ["Handed", "HandoverError", "hand_over"]

_TURN_S: Final = 0.05
_STANDBY_S: Final = 3.0


class HandoverError(StreamyError):
    """There is no standby that is ready, or it did not take over in time."""


class Handed(msgspec.Struct, frozen=True):
    """Who leads now, and how long it took."""

    leader: str
    pipeline: str
    epoch: int
    resolved: int
    seconds: float


def hand_over(connection: Mapping[str, str], database: str, to: str, timeout_s: float) -> Handed:
    """Have the standby ``to`` (empty: any that is ready) lead.

    Raises:
        HandoverError: it did not.
        TopicsError: Kafka does not answer, or there is no such database.

    """
    log = log_id(connection, database)
    if not existing(connection, [TopicNames(database).control]):
        raise HandoverError(f"no pipeline of {database} has run with this release: {_START}")
    topics = SharedTopics(connection, database)
    try:
        return _hand_over(topics, log, to, timeout_s)
    finally:
        topics.close()


_START: Final = "start a standby with `streamydb pipeline --standby`"


def _hand_over(topics: SharedTopics, log: str, to: str, timeout_s: float) -> Handed:
    epoch, end = 0, topics.ends()[0]
    while topics.position() < end:
        heard = (m for m in topics.poll(_TURN_S, _ignore) if m.log == log)
        epoch = max([epoch, *(m.epoch for m in heard if isinstance(m, Claim | Beat))])
    _await_standby(topics, log, to, timeout_s)
    begun_s = time.monotonic()
    topics.say(Handover(log=log, pipeline="", to=to))
    for message in _messages(topics, log, timeout_s):
        if isinstance(message, Beat) and message.epoch > epoch:
            seconds = round(time.monotonic() - begun_s, 3)
            name = message.name or message.pipeline
            return Handed(name, message.pipeline, message.epoch, message.resolved, seconds)
    raise HandoverError(f"no pipeline took over within {timeout_s:g} s; see `streamydb status`")


def _await_standby(topics: SharedTopics, log: str, to: str, timeout_s: float) -> None:
    """Wait for a standby that says it is ready; standbys speak every second."""
    wanted = f"standby {to}" if to else "standby"
    late = None
    begun_s = time.monotonic()
    for message in _messages(topics, log, timeout_s):
        if isinstance(message, Following) and to in ("", message.name):
            if message.ready:
                return
            late = message
        if late is None and time.monotonic() - begun_s > _STANDBY_S:
            break
    if late is None:
        raise HandoverError(f"no {wanted} is running: {_START}")
    raise HandoverError(f"the {wanted} is not ready: it is {late.lag_ms / 1000:.0f} s behind")


def _messages(topics: SharedTopics, log: str, timeout_s: float) -> Iterator[Message]:
    """What is said from now on."""
    ends_s = time.monotonic() + timeout_s
    while time.monotonic() < ends_s:
        said = topics.poll(_TURN_S, _ignore)
        yield from (message for message in said if message.log == log)
        if not said:
            yield Handover(log="", pipeline="")


def _ignore(_key: bytes | None, _value: bytes | None, _offset: int) -> None:
    """Digests are of no interest here."""
