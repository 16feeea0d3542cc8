"""Roles: a grant is over when a broker knows it."""

from __future__ import annotations

import random
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding, AclBindingFilter

from streamydb.kafka import TopicsError, roles
from streamydb.kafka.roles import ROLES


class SlowCluster:
    """Its controller takes rights at once; at each question its broker may know some more.

    Attributes:
        rights: all that were granted.
        shown: those that the broker knows.
    """

    def __init__(self, dice: random.Random, pace: float) -> None:
        """``pace``: how likely the broker learns of a right before the next question."""
        self.rights: set[AclBinding] = set()
        self.shown: list[AclBinding] = []
        self._dice, self._pace = dice, pace

    def create_acls(self, wanted: list[AclBinding]) -> dict[AclBinding, Future[None]]:
        self.rights |= set(wanted)
        return {each: done(None) for each in wanted}

    def describe_acls(self, every: AclBindingFilter) -> Future[list[AclBinding]]:
        assert {each.principal for each in self.rights} == {every.principal}
        new = self.rights - set(self.shown)
        self.shown += [each for each in new if self._dice.random() < self._pace]
        return done([*self.shown])


def done(answer: Any) -> Future[Any]:
    """An answer that has come."""
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(12))
def test_a_grant_waits_for_a_broker_that_knows_all_of_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    cluster = SlowCluster(dice, dice.choice([0.3, 0.8, 1.0]))
    monkeypatch.setattr(roles, "administrator", lambda _: cluster)
    monkeypatch.setattr("streamydb.kafka.admin._POLL_S", 0.0)
    count = roles.apply({}, "bank", dice.choice([*ROLES]), "User:ann")
    assert count == len(cluster.rights) > 0
    assert set(cluster.shown) == cluster.rights


def test_a_broker_that_never_knows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SlowCluster(random.Random(1), 0.0)
    monkeypatch.setattr(roles, "administrator", lambda _: cluster)
    monkeypatch.setattr("streamydb.kafka.admin.TIMEOUT_S", 0.2)
    with pytest.raises(TopicsError, match="for a broker to know the rights of User:ann"):
        roles.apply({}, "bank", "client", "User:ann")
