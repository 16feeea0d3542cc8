"""Items of a queue as its clients see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Claim:
    """An item that a worker holds until a time.

    Attributes:
        id: the item's id.
        value: what was enqueued.
        attempts: how often it has been claimed, this time included.
        until_ms: the commit time at which others may claim it.
        number: its place in the order of the queue.
        lane: where its claim is kept.
        token: tells this claim from others of the same item.
    """

    id: str
    value: Any
    attempts: int
    until_ms: int
    number: int
    lane: int
    token: int

    @property
    def receipt(self) -> list[Any]:
        """Return the identity by which the procedures know the claim."""
        return [self.id, self.lane, self.token]


@dataclass(frozen=True, slots=True)
class Waiting:
    """An item that waits.

    Attributes:
        id: the item's id.
        value: what was enqueued.
        seq: the transaction that enqueued it.
        ts_ms: its commit timestamp.
    """

    id: str
    value: Any
    seq: int
    ts_ms: int


@dataclass(frozen=True, slots=True)
class Depth:
    """The numbers of items: never claimed, and claimed or given back."""

    waiting: int
    claimed: int


@dataclass(frozen=True, slots=True)
class Dead:
    """An item that was given up after so many attempts, at a commit time."""

    id: str
    value: Any
    attempts: int
    at_ms: int
