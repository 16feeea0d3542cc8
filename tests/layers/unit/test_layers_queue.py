"""Queues: each item is claimed once at a time, none is lost, the order is that of the commits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamydb.client import AsyncView, CheckFailedError, View
from streamydb.limits import VALUE_BYTES_MAX
from streamydb.local.module_folder import published
from streamydb.testing.clients import MemoryHost
from streamydb_layers.drivers import drive
from streamydb_layers.errors import (
    ClaimLostError,
    DuplicateIdError,
    InvalidArgumentError,
    InvalidNameError,
)
from streamydb_layers.procedures.streamydb_queue import (
    LANE_ITEMS,
    LANES,
    MOVED_MAX,
    NEVER,
    PAGE_ITEMS,
)
from streamydb_layers.queue import AsyncQueue, Claim, Depth, Queue
from streamydb_layers.queue.core import ITEM_BYTES_MAX, QueueCore
from tests.support.layers import DRIVERS, QUICK, interrupted, layer, together, with_modules


@pytest.fixture
def host() -> Iterator[MemoryHost]:
    with MemoryHost() as running:
        running.database.tick_by_record(time.time_ns() // 1_000_000)
        Queue(with_modules(running).connect(), "any").deploy(None)
        yield running


@pytest.fixture(params=DRIVERS)
def queue(host: MemoryHost, request: pytest.FixtureRequest) -> Any:
    return layer(host, request.param, "queue", "jobs", attempts_max=3)


def pass_time(host: MemoryHost, ms: int) -> None:
    """Let commit time pass: in memory a millisecond is a record."""
    with host.connect() as client:
        for _ in range(ms):
            client.put("clock", 0)


def test_items_are_claimed_in_the_order_of_their_commits(host: MemoryHost, queue: Any) -> None:
    ids = [queue.enqueue(number) for number in range(5)]
    ids += queue.enqueue_many([5, 6])
    assert queue.depth() == Depth(7, 0)
    assert queue.peek(0) == queue.peek(-1) == []
    shown = queue.peek(3)
    assert [(item.id, item.value) for item in shown] == list(zip(ids, range(3), strict=False))
    assert shown[0].seq < shown[1].seq
    first = queue.claim(2)
    assert [(claim.id, claim.value, claim.attempts) for claim in first] == [
        (ids[0], 0, 1), (ids[1], 1, 1),
    ]  # fmt: skip
    assert queue.depth() == Depth(5, 2)
    queue.complete(*first)
    rest = queue.claim(64)
    assert [claim.value for claim in rest] == [2, 3, 4, 5, 6]
    assert [claim.number for claim in rest] == [3, 4, 5, 6, 7]
    queue.complete(*rest)
    assert queue.claim() == []
    assert queue.depth() == Depth(0, 0)
    kept = {entry.key.rpartition("/")[0] for entry in host.connect().scan("queue/jobs/")}
    assert kept <= {"queue/jobs", "queue/jobs/page"}


def test_pages_and_inbox_are_one_queue(host: MemoryHost, queue: Any) -> None:
    total = 2 * PAGE_ITEMS + MOVED_MAX + 10
    for first in range(0, total - 20, 60):
        queue.enqueue_many(range(first, min(first + 60, total - 20)))
    assert queue.settle() == 0
    claimed = queue.claim(50)
    queue.enqueue_many(range(total - 20, total))
    assert len(queue.peek(total)) == total - 50
    while more := queue.claim(64):
        claimed += more
        queue.complete(*more)
    assert [claim.value for claim in claimed] == list(range(total))
    entries = {entry.key for entry in host.connect().scan("queue/jobs/page")}
    assert len(entries) <= 1


def test_a_full_inbox_is_emptied_by_who_finds_it_full(queue: Any) -> None:
    ids = [f"{number:0128}" for number in range(2_600)]
    for first in range(0, 2_600, 650):
        queue.enqueue_many([0] * 650, item_ids=ids[first : first + 650])
    claims: list[Claim] = queue.claim(64)
    assert [claim.id for claim in claims] == ids[:64]
    assert queue.depth() == Depth(2_600 - 64, 64)


def test_time_is_commit_time(host: MemoryHost, queue: Any) -> None:
    queue.enqueue("a")
    (first,) = queue.claim(timeout_s=0.020)
    assert queue.claim() == []
    pass_time(host, 10)
    assert queue.claim() == []
    (longer,) = queue.extend(first, timeout_s=0.050)
    assert longer.until_ms > first.until_ms
    pass_time(host, 30)
    assert queue.claim() == []
    pass_time(host, 30)
    (second,) = queue.claim(timeout_s=10)
    assert (second.value, second.attempts, second.number) == ("a", 2, 1)
    for outdated in (queue.complete, queue.extend, queue.release):
        with pytest.raises(ClaimLostError, match=first.id):
            outdated(first)
    queue.complete(second)
    with pytest.raises(ClaimLostError):
        queue.complete(second)
    assert queue.depth() == Depth(0, 0)


def test_what_was_given_back_comes_before_what_is_new(host: MemoryHost, queue: Any) -> None:
    queue.enqueue_many(["a", "b", "c"])
    a, b = queue.claim(2, timeout_s=10)
    queue.release(b)
    queue.release(a, delay_s=0.010)
    assert [claim.value for claim in queue.claim(1, timeout_s=10)] == ["b"]
    pass_time(host, 12)
    assert [(claim.value, claim.attempts) for claim in queue.claim(3)] == [("a", 2), ("c", 1)]


@pytest.mark.parametrize("end", ["released", "expired"])
def test_an_item_is_given_up_after_its_last_attempt(host: MemoryHost, queue: Any, end: str) -> None:
    item = queue.enqueue({"poison": True})
    queue.enqueue("other")
    for attempt in (1, 2, 3):
        claim = queue.claim(timeout_s=0.005)[0]
        assert (claim.id, claim.attempts) == (item, attempt)
        if end == "released":
            queue.release(claim)
        else:
            pass_time(host, 6)
    assert [claim.value for claim in queue.claim()] == ["other"]
    (dead,) = queue.dead()
    assert (dead.id, dead.value, dead.attempts) == (item, {"poison": True}, 3)
    with pytest.raises(DuplicateIdError, match="redrive"):  # it would be given up over the first
        queue.enqueue("another", item_id=item)
    assert queue.redrive(item)
    assert not queue.redrive(item)
    assert queue.dead() == []
    assert [(claim.id, claim.attempts) for claim in queue.claim()] == [(item, 1)]


def test_ids_of_ones_own_are_added_once(queue: Any) -> None:
    assert queue.enqueue("first", item_id="order-7") == "order-7"
    with pytest.raises(DuplicateIdError, match="order-7"):
        queue.enqueue("second", item_id="order-7")
    assert [item.value for item in queue.peek()] == ["first"]


def test_a_cancelled_item_is_not_claimed(queue: Any) -> None:
    ids = queue.enqueue_many(["a", "b", "c"])
    assert queue.cancel(ids[0])
    assert not queue.cancel(ids[0])
    assert [item.value for item in queue.peek()] == ["b", "c"]
    assert [claim.value for claim in queue.claim()] == ["b"]
    assert queue.depth() == Depth(1, 1)


def test_an_id_that_is_used_again_has_one_claim_at_a_time(queue: Any) -> None:
    queue.enqueue("old", item_id="order-7")
    assert queue.cancel("order-7")
    queue.enqueue("new", item_id="order-7")
    queue.enqueue("other")
    assert [item.value for item in queue.peek()] == ["new", "other"]
    first, other = queue.claim(3, timeout_s=1000)
    assert [first.value, other.value] == ["new", "other"]
    assert queue.claim() == []
    queue.complete(first, other)
    assert queue.claim() == []
    assert queue.depth() == Depth(0, 0)


def test_an_item_that_comes_back_while_its_old_id_is_claimed_is_not_lost(host: MemoryHost) -> None:
    with host.connect(options=QUICK) as client:
        queue = Queue(client, "jobs")
        queue.core = QueueCore("jobs", 5, lane=None, turn=0)  # one that settles nothing meanwhile
        queue.enqueue("old", item_id="order-7")
        queue.cancel("order-7")

        def again() -> None:
            queue.enqueue("new", item_id="order-7")
            assert queue.claim() == []

        (claim,) = drive(client, interrupted(queue.core.claim(timeout_s=1000), 3, again))
        assert (claim.value, claim.attempts) == ("new", 1)
        queue.complete(claim)
        assert queue.depth() == Depth(0, 0)


def test_ids_that_are_all_passed_over_are_taken(queue: Any) -> None:
    """The last id of a page is that of an item that came back, and was claimed by its first id."""
    queue.enqueue_many(range(PAGE_ITEMS - 2))
    queue.enqueue("old", item_id="order-7")
    assert queue.cancel("order-7")
    queue.enqueue("new", item_id="order-7")
    assert queue.settle() == 0
    claims = queue.claim(64, timeout_s=1000) + queue.claim(63, timeout_s=1000)
    assert [claim.value for claim in claims] == [*range(PAGE_ITEMS - 2), "new"]
    assert queue.claim() == []
    queue.enqueue("later")
    assert [claim.value for claim in queue.claim(2)] == ["later"]
    assert queue.depth() == Depth(0, PAGE_ITEMS)


def test_a_page_that_an_earlier_release_has_lost_stops_nobody(host: MemoryHost) -> None:
    with host.connect() as client:
        queue = Queue(client, "jobs")
        due = [NEVER] * LANES
        ends = {"head": 0, "taken": 127, "tail": 1, "paged": 1, "claimed": 127, "due": due}
        client.put(queue.prefix + "ends", ends)
        queue.enqueue("a")
        assert [claim.value for claim in queue.claim(2)] == ["a"]
        assert queue.depth() == Depth(0, 1)


def test_the_longest_item_can_be_given_up(queue: Any) -> None:
    longest = "x" * (ITEM_BYTES_MAX - 2)
    with pytest.raises(InvalidArgumentError, match="262,044 bytes"):
        queue.enqueue(longest + "x")
    queue.enqueue(longest)
    for _ in range(3):
        queue.release(*queue.claim())
    assert [(dead.value, dead.attempts) for dead in queue.dead()] == [(longest, 3)]


def test_one_that_cannot_be_given_up_costs_nobody_a_claim(host: MemoryHost) -> None:
    with host.connect() as client:
        queue = Queue(client, "jobs", attempts_max=1)
        item = "x" * (VALUE_BYTES_MAX - 2)
        by_hand = client.atomic().put(f"{queue.prefix}item/a", item)
        by_hand.append(f"{queue.prefix}inbox", "a").commit()
        assert len(queue.claim(timeout_s=0.001)) == 1
        pass_time(host, 2)
        queue.enqueue("other")
        assert [claim.value for claim in queue.claim()] == ["other"]


def test_who_holds_a_cancelled_item_does_not_remove_what_came_after_it(queue: Any) -> None:
    queue.enqueue("old", item_id="order-7")
    (old,) = queue.claim(timeout_s=1000)
    assert queue.cancel("order-7")
    queue.enqueue("new", item_id="order-7")
    with pytest.raises(ClaimLostError):
        queue.complete(old)
    (new,) = queue.claim(timeout_s=1000)
    assert (new.value, new.attempts) == ("new", 1)
    queue.complete(new)


def test_enqueue_and_complete_are_parts_of_other_transactions(host: MemoryHost) -> None:
    with host.connect(options=QUICK) as client:
        queue = Queue(client, "jobs")
        client.put("stock", 1)
        order = client.atomic().add("stock", -1, min=0)
        queue.enqueue_in(order, "ship it")
        order.commit()
        with pytest.raises(CheckFailedError):
            queue.enqueue_many(["x"], also=lambda txn: txn.check("stock", eq=1))
        (claim,) = queue.claim()
        assert (claim.value, queue.depth()) == ("ship it", Depth(0, 1))

        def ship(view: View) -> None:
            view.put("shipped", view.get("shipped", 0) + 1)
            queue.complete_in(view, claim)

        client.run(ship)
        with pytest.raises(ClaimLostError):
            client.run(ship)
        assert (client.get("shipped"), queue.depth()) == (1, Depth(0, 0))


def test_an_outdated_claim_ends_no_other_in_the_same_lane(host: MemoryHost) -> None:
    with host.connect(options=QUICK) as client:
        queue = Queue(client, "jobs", lane=3)
        queue.enqueue("a")
        (first,) = queue.claim(timeout_s=0.001)
        pass_time(host, 2)
        (second,) = queue.claim(timeout_s=1000)
        assert first.lane == second.lane == 3
        with pytest.raises(ClaimLostError):
            client.run(lambda view: queue.complete_in(view, first))
        client.run(lambda view: queue.complete_in(view, second))


def test_an_item_is_not_given_up_if_its_holder_was_faster(host: MemoryHost) -> None:
    with host.connect() as client:
        queue = Queue(client, "jobs", attempts_max=1)
        queue.enqueue("a")
        (claim,) = queue.claim(timeout_s=0.001)
        pass_time(host, 2)

        def extend() -> None:
            queue.extend(claim, timeout_s=1000)

        assert drive(client, interrupted(queue.core.claim(), 1, extend)) == []
        assert queue.dead() == []
        queue.complete(claim)


def test_the_same_for_coroutines(host: MemoryHost) -> None:
    async def scenario() -> None:
        client = host.connect_async("direct", options=QUICK)
        queue = AsyncQueue(client, "jobs")
        await queue.enqueue("a")
        (claim,) = await queue.claim()

        async def done(view: AsyncView) -> None:
            view.put("done", claim.value)
            await queue.complete_in(view, claim)

        await client.run(done)
        assert await client.get("done") == "a"
        assert await queue.depth() == Depth(0, 0)

    host.portal.call(scenario())


def test_claims_are_limited_and_nothing_is_lost_at_the_limit(host: MemoryHost) -> None:
    with host.connect() as client:
        queue = Queue(client, "jobs", lane=15)
        most = LANES * LANE_ITEMS
        for _ in range(most // 512):
            queue.enqueue_many(range(512))
        queue.enqueue("one more")
        while queue.depth().claimed < most:
            assert len(queue.claim(64, timeout_s=1000)) == 64
        assert queue.claim() == []
        assert queue.depth() == Depth(1, most)


def test_arguments_are_checked(host: MemoryHost) -> None:
    with host.connect() as client:
        queue = Queue(client, "jobs")
        for count in (0, 65):
            with pytest.raises(InvalidArgumentError):
                queue.claim(count)
        with pytest.raises(InvalidArgumentError):
            queue.claim(timeout_s=-1)
        with pytest.raises(InvalidArgumentError):
            Queue(client, "jobs", attempts_max=0)
        for name in ("", "a/b", "a" * 65):
            with pytest.raises(InvalidNameError):
                Queue(client, name)
        with pytest.raises(InvalidNameError):
            queue.enqueue(1, item_id="x" * 129)


class Worker:
    """Claims until all is done; sometimes dies with what it holds."""

    def __init__(self, host: MemoryHost, number: int, done: list[str], items: int) -> None:
        self.queue = Queue(host.connect(options=QUICK), "jobs", attempts_max=1000)
        self.number = number
        self.done = done
        self.items = items
        self.claims: list[tuple[Claim, str]] = []

    def work(self) -> None:
        while len(self.done) < self.items:
            for place, claim in enumerate(self.queue.claim(1 + self.number % 3, timeout_s=0.040)):
                fate = "dies" if (claim.number + claim.attempts + place) % 4 == 0 else "done"
                if fate == "done":
                    try:
                        self.queue.complete(claim)
                        self.done.append(claim.id)
                    except ClaimLostError:
                        fate = "late"
                self.claims.append((claim, fate))


def test_workers_that_compete_and_die_claim_everything_once_at_a_time(host: MemoryHost) -> None:
    items = 90
    done_ids: list[str] = []
    workers = [Worker(host, number, done_ids, items) for number in range(6)]

    def produce(queue: Queue, producer: int) -> None:
        for number in range(items // 3):
            queue.enqueue([producer, number])

    producers = [
        partial(produce, Queue(host.connect(options=QUICK), "jobs"), number) for number in range(3)
    ]
    together([*producers, *(worker.work for worker in workers)])
    claims = sorted(
        (claim.token, claim.number, claim.value, claim, fate)
        for worker in workers
        for claim, fate in worker.claims
    )
    done = [value for _, _, value, _, fate in claims if fate == "done"]
    assert sorted(done) == [[producer, n] for producer in range(3) for n in range(items // 3)]
    held: dict[str, int] = {}
    for seq, _, _, claim, _ in claims:
        claimed_ms = host.database.log.results[seq - 1].ts_ms
        assert held.get(claim.id, 0) <= claimed_ms, "claimed while another claim stood"
        assert claim.until_ms == claimed_ms + 40
        held[claim.id] = claim.until_ms
    first = [claim for *_, claim, _ in claims if claim.attempts == 1]
    assert [claim.number for claim in first] == list(range(1, items + 1))
    created: dict[str, int] = {}
    for batch in host.database.changes.all:
        for change in batch.changes:
            created.setdefault(change.key.rpartition("/")[2], change.seq)
    assert [created[claim.id] for claim in first] == sorted(created[claim.id] for claim in first)
    with host.connect() as client:
        assert Queue(client, "jobs").depth() == Depth(0, 0)


def test_many_settle_and_claim_at_once_from_old_guesses(host: MemoryHost) -> None:
    queues = [Queue(host.connect(options=QUICK), "jobs") for _ in range(4)]
    queues[0].enqueue_many(range(600))
    for queue in queues:
        queue.core._pages = {"head": 0, "tail": 0}
    taken: list[int] = []

    def drain(queue: Queue) -> None:
        queue.settle()
        while claims := queue.claim(40, timeout_s=1000):
            taken.extend(claim.value for claim in claims)

    together(partial(drain, queue) for queue in queues)
    assert sorted(taken) == list(range(600))


@pytest.mark.parametrize("settled", [True, False])
def test_the_longest_inbox_is_within_the_budget(host: MemoryHost, *, settled: bool) -> None:
    with host.connect() as client:
        queue = Queue(client, "jobs")
        ids = [f"{number:05}" for number in range(32_000)]
        client.put(queue.prefix + "inbox", ids)
        client.put(f"{queue.prefix}item/{ids[0]}", 0)
        client.put(f"{queue.prefix}item/{ids[63]}", 63)
        if settled:
            assert queue.settle() == len(ids) - MOVED_MAX
        assert [claim.value for claim in queue.claim(64)] == [0, 63]


def test_claims_of_all_lanes_that_are_over_are_within_the_budget(host: MemoryHost) -> None:
    with host.connect() as client:
        queue = Queue(client, "jobs", attempts_max=2)
        ids = [f"{number:0128}" for number in range(LANES * LANE_ITEMS)]
        for first in range(0, len(ids), 512):
            part = ids[first : first + 512]
            queue.enqueue_many(part, item_ids=part)
            while len(queue.claim(64, timeout_s=0.2)) == 64:
                pass
        pass_time(host, 200)
        again: list[Claim] = []
        while len(again) < len(ids) and (claims := queue.claim(64, timeout_s=0.2)):
            again += claims
        assert [claim.id for claim in again] == ids
        pass_time(host, 200)
        assert queue.claim(64) == []
        assert len(queue.dead()) == 16


def test_what_is_no_id_in_an_inbox_stops_nobody(host: MemoryHost) -> None:
    with host.connect() as client:
        queue = Queue(client, "jobs")
        good = "\u00e9" * 64
        client.put(f"{queue.prefix}item/{good}", "good")
        hostile: list[Any] = [1, None, {}, [[], "x" * 129, 2.5], ""]
        hostile += ["\u20ac" * 43, "\U0001f600" * 33]
        client.put(queue.prefix + "inbox", [*hostile, "x" * 481, good])
        assert [waiting.value for waiting in queue.peek()] == ["good"]
        assert queue.depth().waiting == 1
        assert [claim.value for claim in queue.claim()] == ["good"]
        client.put(queue.prefix + "inbox", hostile)
        assert queue.claim() == []
        assert client.get(queue.prefix + "inbox") is None


def test_a_folder_is_a_text_or_a_path(tmp_path: Path) -> None:
    for folder in (tmp_path / "a", str(tmp_path / "b")):
        with MemoryHost() as host, host.connect() as client:
            assert Queue(client, "jobs").deploy(folder)
            assert [each.module for each in published(Path(folder))] == ["streamydb_queue"]
