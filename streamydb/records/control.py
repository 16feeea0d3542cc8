"""The messages between pipelines over one log, in `<db>.control` (JSON, one kind a tag)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from streamydb.errors import RecordError
from streamydb.records.formats import FORMAT, record_decoder
from streamydb.records.gears import GearStatus


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """``log``: Kafka's id of the transactions topic, so that another log's past is not believed.

    ``pipeline``: the incarnation of the sender's checkpoint. ``name``: what people call it.
    ``terms``: the settings that its outputs follow from, which all must have alike.
    ``format``: of the message. ``said_ms``: the sender's own clock, by which it knows the message
    when it comes back; 0: of a release that does not say it.
    """

    log: str
    pipeline: str
    name: str = ""
    terms: str = ""
    format: int = FORMAT
    said_ms: int = 0


class LeaderClaim(_Message, frozen=True, kw_only=True, tag="claim"):
    """The sender leads from now on; of several claims of one epoch the first in the topic holds."""

    epoch: int


class Beat(_Message, frozen=True, kw_only=True, tag="beat"):
    """The sender leads, and all outputs up to ``resolved`` are written.

    ``read``: the sum of the offsets up to which it has read the log. ``executed``: up to where its
    own state is; -1: it does not know yet. ``gear``: which of its gears leads; None: it has not
    told, or is itself a real-time gear.
    """

    epoch: int
    resolved: int
    read: int
    executed: int = -1
    gear: GearStatus | None = None


class Following(_Message, frozen=True, kw_only=True, tag="following"):
    """The sender follows: all up to ``resolved`` is in its state, it was ``lag_ms`` ago elsewhere.

    ``behind``: how many seqs it lacks of what it was told; -1: it does not know. ``wants``: it
    would claim the lead, so whoever is further is to say so. ``gear``: as of a beat.
    """

    epoch: int
    resolved: int
    lag_ms: int
    ready: bool
    behind: int = -1
    wants: bool = False
    gear: GearStatus | None = None


class Handover(_Message, frozen=True, kw_only=True, tag="handover"):
    """A person asks the pipeline named ``to`` (any that is ready, if empty) to lead.

    ``target``: its incarnation, if a particular one is meant.
    """

    to: str = ""
    target: str = ""


class Audited(_Message, frozen=True, kw_only=True, tag="audited"):
    """The sender's state agrees with its digest, though another pipeline's digest differs."""


Message: TypeAlias = LeaderClaim | Beat | Following | Handover | Audited

_decode: Final[Callable[[bytes], Message]] = record_decoder(Message, "control")

_GEAR: Final = "+"
"""Stands in the incarnation of a real-time gear, behind that of its pipeline."""


def gear_of(pipeline: str, start: str) -> str:
    """Return the incarnation of a real-time gear of a pipeline;
    ``start``: no other start has it.
    """
    return f"{pipeline}{_GEAR}{start}"


def owner_of(pipeline: str) -> str:
    """Return the incarnation of the pipeline that a real-time gear belongs to; of others,
    theirs.
    """
    return pipeline.partition(_GEAR)[0]


def encode_message(message: Message) -> bytes:
    return msgspec.json.encode(message)


def decode_message(value: bytes | None) -> Message:
    """The message in a record's value.
    Raises RecordError: it is none; a newer release may know more kinds.
    """
    message = _decode(value or b"")
    if message.format != FORMAT:
        what = f"this control record has format {message.format}, this release reads {FORMAT}"
        raise RecordError(f"{what}: upgrade this pipeline (docs/upgrading.md)")
    return message
