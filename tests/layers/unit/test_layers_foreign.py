"""A key of a layer that has a value of another program is named; nothing ends with a traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from streamydb.client import Client
from streamydb.testing.clients import MemoryHost
from streamydb_layers.documents import Collection
from streamydb_layers.errors import ForeignValueError
from streamydb_layers.leaderboard import Leaderboard
from streamydb_layers.leases import Leases
from streamydb_layers.queue import Queue
from tests.support.layers import with_modules

VALUES: list[Any] = ["text", 5, True, [1], [1, "x"], {"a": 1}]


@pytest.fixture
def client() -> Iterator[Client]:
    with MemoryHost() as host, with_modules(host).connect() as connected:
        yield connected


def assert_named(key: str, *functions: Callable[[], object]) -> None:
    for function in functions:
        with pytest.raises(ForeignValueError, match="another program") as refused:
            function()
        assert refused.value.key == key


@pytest.mark.parametrize("value", [*VALUES, {"holder": 5}])
def test_a_lease(client: Client, value: Any) -> None:
    leases = Leases(client, "jobs")
    client.put("lease/jobs/a", value)
    acquire = partial(leases.acquire, "a", "ann", timeout_s=3_600)
    assert_named("lease/jobs/a", acquire, partial(leases.holder, "a"))
    client.delete("lease/jobs/a")
    assert leases.acquire("a", "ann").holder == "ann"


@pytest.mark.parametrize("value", [*VALUES, {"indexes": {"i": {}}, "number": 1}])
def test_the_schema_of_a_collection(client: Client, value: Any) -> None:
    users = Collection(client, "users")
    client.put("doc/users/schema", value)
    index = [partial(users.create_index, "i", ["a"]), partial(users.drop_index, "i")]
    assert_named("doc/users/schema", users.find, users.indexes, *index)
    assert_named("doc/users/schema", partial(users.put, "a", {}), partial(users.delete, "a"))
    assert users.get("a") is None


@pytest.mark.parametrize("value", [*VALUES, [1.5, 0], [2**53, 0], [1, -1]])
def test_a_member_of_a_leaderboard(client: Client, value: Any) -> None:
    board = Leaderboard(client, "season")
    client.put("board/season/member/ann", value)
    calls = [partial(call, "ann") for call in (board.rank, board.around, board.add, board.remove)]
    assert_named("board/season/member/ann", *calls)
    assert board.add("bob", 1) == 1


@pytest.mark.parametrize("value", VALUES)
def test_what_a_queue_keeps(client: Client, value: Any) -> None:
    queue = Queue(client, "jobs")
    queue.deploy(None)
    queue.enqueue(1, item_id="a")
    (claim,) = queue.claim()
    client.put(f"{queue.prefix}dead/b", value)
    assert_named(f"{queue.prefix}dead/b", queue.dead, partial(queue.redrive, "b"))
    client.put(f"{queue.prefix}ends", value)
    other = Queue(client, "jobs")
    assert_named(f"{queue.prefix}ends", queue.depth, queue.peek, other.claim, other.settle)
    assert len(other.enqueue_many(range(20))) == 20, "it settles, in vain: that is not its affair"
    client.delete(f"{queue.prefix}ends")
    client.put(f"{queue.prefix}inbox", 5)
    assert_named(f"{queue.prefix}inbox", queue.depth, queue.peek)
    client.delete(f"{queue.prefix}inbox")
    client.put(f"{queue.prefix}lane/{claim.lane}", 5)
    assert_named(f"{queue.prefix}lane/{claim.lane}", queue.depth)
    completes = partial(client.run, lambda view: queue.complete_in(view, claim))
    assert_named(f"{queue.prefix}lane/{claim.lane}", completes)
