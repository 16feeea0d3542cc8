"""Roles: a grant is over when a broker knows it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding, AclBindingFilter

from streamydb.kafka import TopicsError, roles


class SlowCluster:
    """Its controller takes rights at once; its broker shows them some questions later."""

    def __init__(self, after: int) -> None:
        self.rights: set[AclBinding] = set()
        self.asked = 0
        self._after = after

    def create_acls(self, wanted: list[AclBinding]) -> dict[AclBinding, Future[None]]:
        self.rights |= set(wanted)
        return {each: done(None) for each in wanted}

    def describe_acls(self, every: AclBindingFilter) -> Future[list[AclBinding]]:
        self.asked += 1
        assert {each.principal for each in self.rights} == {every.principal}
        known = len(self.rights) if self.asked > self._after else len(self.rights) - 1
        return done(list(self.rights)[:known])


def done(answer: Any) -> Future[Any]:
    """An answer that has come."""
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


@pytest.mark.parametrize("after", [0, 3])
def test_a_grant_waits_for_a_broker_that_knows_all_of_it(
    after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SlowCluster(after)
    monkeypatch.setattr(roles, "administrator", lambda _: cluster)
    assert roles.apply({}, "bank", "client", "User:ann") == len(cluster.rights) > 1
    assert cluster.asked == after + 1


def test_a_broker_that_never_knows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "administrator", lambda _: SlowCluster(1_000_000))
    monkeypatch.setattr("streamydb.kafka.admin.TIMEOUT_S", 0.2)
    with pytest.raises(TopicsError, match="for a broker to know the rights of User:ann"):
        roles.apply({}, "bank", "client", "User:ann")
