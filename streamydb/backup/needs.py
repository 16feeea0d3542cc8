"""Find out who still needs which part of a log: checkpoints, pipelines, read models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from streamydb.backup.folder import StateFolder
from streamydb.backup.manifest import BackupError
from streamydb.backup.start import START
from streamydb.errors import RecordError
from streamydb.kafka import TopicNames
from streamydb.kafka.reader import TopicMissingError, TopicReader
from streamydb.local.folder import DatabaseFolder
from streamydb.records.control import (
    Beat,
    Following,
    LeaderClaim,
    Message,
    decode_message,
    owner_of,
)
from streamydb.records.formats import UNREADABLE, later_format


class Need(NamedTuple):
    """The part of the log that somebody needs.

    Attributes:
        who: in words.
        name: by which it can be left out of account.
        seq: everything after this seq; None if it counts in offsets.
        offsets: per partition of the log, everything from this offset on; None if in seqs.
    """

    who: str
    name: str
    seq: int | None
    offsets: Mapping[int, int] | None


def needs(
    connection: Mapping[str, str], database: str, log: str, place: DatabaseFolder
) -> Iterator[Need]:
    """Return the known needs except those of read models: from the home's folders, and from the
    messages of pipelines.
    Raises BackupError: a checkpoint cannot be understood, or what a pipeline of a newer release
    told.
    """
    topic = TopicNames(database).transactions
    for name in ("", *place.others()):
        checkpoint = place.checkpoint_of(name)
        offsets = checkpoint_offsets(checkpoint, topic)
        if offsets is not None:
            what = f"the pipeline {name}" if name else "the pipeline"
            yield Need(f"{what} with the checkpoint {checkpoint}", name or "active", None, offsets)
    yield from _told(connection, database, log)


def checkpoint_offsets(checkpoint: Path, topic: str) -> dict[int, int] | None:
    """From where a pipeline would read the log if it started now; None: it has not begun.
    Raises BackupError: the newest files cannot be understood.
    """
    names = (path.name for path in (checkpoint / "query" / "commits").glob("*"))
    commits = [int(name) for name in names if name.isdigit()]
    if not commits and (checkpoint / START).exists():
        return StateFolder(checkpoint / START).about().offsets()
    if not commits:
        return {} if (checkpoint / "query").exists() else None
    path = checkpoint / "query" / "offsets" / str(max(commits))
    try:
        for line in path.read_text("utf-8").splitlines():
            if line.startswith("{") and topic in (offsets := msgspec.json.decode(line)):
                return {int(number): offset for number, offset in offsets[topic].items()}
    except (OSError, *UNREADABLE) as fault:
        raise BackupError(f"{path} cannot be read ({fault}); is the checkpoint whole?") from fault
    raise BackupError(f"{path} names no offsets of {topic}; is it another database's checkpoint?")


def _told(connection: Mapping[str, str], database: str, log: str) -> list[Need]:
    """Return the need of each pipeline that the messages in `<db>.control` tell of, by name."""
    try:
        with TopicReader(connection, TopicNames(database).control) as reader:
            messages = (_message(record.value(), log) for record in reader.whole())
            return told_needs(message for message in messages if message is not None)
    except TopicMissingError:
        return []


def told_needs(messages: Iterable[Message]) -> list[Need]:
    """Return the need of each pipeline, by the newest of its messages, which come in order.

    The one that leads says little, because it only tells those that follow; what it has executed is
    what is resolved. A real-time gear needs nothing: it begins with the files of its pipeline.
    """
    newest: dict[str, tuple[str, Need]] = {}
    leader = (0, "")
    for message in messages:
        if isinstance(message, LeaderClaim) and message.epoch > leader[0]:
            leader = message.epoch, message.pipeline
        is_gear = message.pipeline != owner_of(message.pipeline)
        if isinstance(message, Beat | Following) and not is_gear:
            name = message.name or "active"
            who = f"the pipeline {name}, as it last told,"
            newest[name] = message.pipeline, Need(who, name, message.resolved, None)
    return [need for pipeline, need in newest.values() if pipeline != leader[1]]


def _message(value: bytes | None, log: str) -> Message | None:
    try:
        message = decode_message(value)
    except RecordError as fault:
        if later_format(value or b"") is not None:  # what its sender needs is in it, and unread
            raise BackupError(f"What a pipeline told cannot be read: {fault}") from fault
        return None
    return message if message.log == log else None
