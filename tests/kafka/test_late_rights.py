"""Rights that are granted while somebody is refused for want of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamydb.kafka import create
from streamydb.kafka.producer import AppendError, Producer
from streamydb.kafka.roles import apply
from streamydb.settings import Settings
from streamydb.testing.database import wait_for
from tests.support.secured import ADMIN, Secured

pytestmark = pytest.mark.timeout(180)

TRANSACTION = {"id": "t1", "updates": [{"op": "put", "key": "k", "value": 1}]}
SCRAM = "SCRAM-SHA-512"


def is_in(producer: Producer) -> bool:
    """Whether a transaction is appended; only rights may be lacking."""
    refused = producer.submit(TRANSACTION).exception(60)
    assert refused is None or "streamydb acls" in str(refused)
    return refused is None


def both(secured: Secured, database: str, name: str) -> tuple[Settings, Settings]:
    """The admin of a database, and a new user, who has no rights yet."""
    secured.add_scram([name])
    admin = secured.settings(ADMIN, database=database, partitions=2)
    return admin, secured.settings(name, SCRAM, database=database, partitions=2)


def test_rights_that_are_granted_later_need_no_other_producer(
    secured: Secured, as_role: Callable[[str], Settings]
) -> None:
    """Each refusal ends a client of librdkafka, before it has a record or while it has one."""
    admin, late = both(secured, as_role("client").database, "late")
    with Producer(late, timeout_s=30) as producer:
        for _ in range(3):
            with pytest.raises(AppendError, match="streamydb acls"):
                producer.append(TRANSACTION)
        wait_for(lambda: producer._client.connections.ended is not None, "its end", 30)
        apply(admin.client_config(), admin.database, "client", "User:late")
        wait_for(lambda: is_in(producer), "a broker that knows its new rights", 30)


def test_a_topic_that_may_be_written_later_needs_no_other_producer(
    secured: Secured, as_role: Callable[[str], Settings]
) -> None:
    """Who may write some topic is not ended; it is refused before it gives a record away."""
    admin, late = both(secured, as_role("client").database, "later")
    beside = f"{admin.database}x"
    create(admin.client_config(), beside, partitions=2)
    apply(admin.client_config(), beside, "client", "User:later")
    with Producer(late, timeout_s=30) as producer:
        refused = [producer.submit(TRANSACTION).exception(60) for _ in range(3)]
        assert [type(error) for error in refused] == [AppendError] * 3
        assert producer._client.connections.ended is None
        apply(admin.client_config(), admin.database, "client", "User:later")
        wait_for(lambda: is_in(producer), "a broker that knows its new rights", 30)
