"""Break the election protocol on purpose: `election` must notice each (see `mutations`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from streamydb.pipeline.standby.core import ElectionMember
from streamydb.pipeline.standby.position import OwnPosition
from streamydb.records.control import LeaderClaim

__all__ = ["ELECTION_MUTATIONS", "mutated_election"]


def _ready_from_the_start() -> Any:
    """Ready: one that follows is ready until it has lacked something for five seconds."""

    def ready(self: Any, now_ms: int) -> bool:
        return bool(self.role == "following" and self.lag_ms(now_ms) <= self._times.ready)

    return mock.patch.object(ElectionMember, "is_ready", ready)


def _ready_without_listening() -> Any:
    """Ready: one that has not seen its own messages for long believes that it knows everything."""
    return mock.patch.object(OwnPosition, "knows", return_value=True)


def _look_at_nobody() -> Any:
    """Election: one claims without looking how far the others are."""
    return mock.patch.object(ElectionMember, "_ahead", return_value=[])


def _claim_at_once() -> Any:
    """Election: one claims in silence, without saying so first and hearing itself."""
    return mock.patch.object(ElectionMember, "_elect", lambda self, now: self.claim(now))


def _claim_beside_a_leader() -> Any:
    """Election: one that is ready claims while the leader beats."""
    return mock.patch.object(
        ElectionMember,
        "_is_wanted",
        lambda self, now: bool(self.leader.pipeline) and self.is_ready(now),
    )


def _believe_the_last_claim() -> Any:
    """Election: of several claims of one epoch the last one holds."""
    original = ElectionMember._hear_epoch  # noqa: SLF001 - breaking what is private is the point

    def hear(self: Any, message: Any, now_ms: int) -> Any:
        if isinstance(message, LeaderClaim) and message.epoch == self.leader.epoch:
            self.leader.epoch -= message.pipeline != self.leader.pipeline
        return original(self, message, now_ms)

    return mock.patch.object(ElectionMember, "_hear_epoch", hear)


def _never_claim_unready() -> Any:
    """Election: one that is not ready never claims, however long nobody leads."""
    original = ElectionMember._is_wanted  # noqa: SLF001 - breaking what is private is the point
    return mock.patch.object(
        ElectionMember, "_is_wanted", lambda self, now: self.is_ready(now) and original(self, now)
    )


ELECTION_MUTATIONS: Final[Mapping[str, Callable[[], Any]]] = {
    "election-ready": _ready_from_the_start,
    "election-listening": _ready_without_listening,
    "election-furthest": _look_at_nobody,
    "election-asking": _claim_at_once,
    "election-beats": _claim_beside_a_leader,
    "election-epochs": _believe_the_last_claim,
    "election-alone": _never_claim_unready,
}
"""Mutations by name."""


@contextmanager
def mutated_election(name: str) -> Iterator[None]:
    """Run the body with the mutation ``name`` in place."""
    with ELECTION_MUTATIONS[name]():
        yield
