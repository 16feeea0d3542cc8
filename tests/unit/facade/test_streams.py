"""Reading streams: pages, waiting, what is kept and what is not, through facade and clients."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.client import InvalidParameterError, NoSuchStreamError, NotConnectedError, Options
from streamydb.errors import RecordError
from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.auth import Caller, Tokens
from streamydb.facade.ports import PageBounds, StreamRow
from streamydb.facade.problems import ProblemError
from streamydb.facade.stream_pages import EmittedPage, StreamFeed, StreamPosition
from streamydb.kafka.errors import LogFaultError
from streamydb.procedures.modules import compile_module
from streamydb.records.emission import partition_of
from streamydb.testing.clients import Kind, MemoryHost
from streamydb.testing.in_process import InProcess, scenario, until
from streamydb.testing.memory import MemoryDatabase
from streamydb.testing.memory_feed import MemoryStreams
from tests.support.workflows import VOTER

Connect = Callable[..., Any]
PAGE = PageBounds(3, 10_000)


def deploy() -> dict[str, Any]:
    return compile_module("voter", VOTER.encode()).record


def vote(client: Any, number: int) -> None:
    client.call("voter.vote", phone=number, who=f"c{number % 2}")


@pytest.fixture
def limits() -> FacadeSettings:
    return FacadeSettings(page_entries_max=2, heartbeat_s=5)


@pytest.fixture
def voting(host: MemoryHost, connect: Connect) -> Any:
    """A client of a database with the voter."""
    host.database.modules.put(VOTER.encode())
    client = connect(options=Options(modules=host.database.modules))
    client.transaction(deploy=deploy())
    return client


def test_a_stream_from_its_beginning_to_its_end(voting: Any) -> None:
    for number in range(5):
        vote(voting, number)
    found = list(voting.stream("voter.counted", end=True))
    assert [each.record for each in found] == [
        {"who": f"c{n % 2}", "total": 1 + n // 2} for n in range(5)
    ]
    places = [(each.seq, each.index) for each in found]
    assert places == sorted(set(places))
    assert {each.stream for each in found} == {"voter.counted"}
    assert voting.session.seq >= found[-1].seq
    rest = list(voting.stream("voter.counted", after=places[1], end=True))
    assert [(each.seq, each.index) for each in rest] == places[2:]
    rest = list(voting.stream("voter.counted", after=places[2][0], end=True))
    assert [(each.seq, each.index) for each in rest] == places[3:]
    assert list(voting.stream("voter.counted", after=10**9, end=True)) == []


def test_a_stream_waits_for_what_is_to_come(voting: Any, connect: Connect) -> None:
    vote(voting, 0)
    following = voting.stream("voter.votes")
    assert next(following).record == {"who": "c0"}
    other = connect(options=Options(modules=voting.session.options.modules))
    thread = threading.Thread(target=vote, args=(other, 1))
    thread.start()
    assert next(following).record == {"who": "c1"}
    thread.join()


@pytest.mark.parametrize("kind", ["http", "direct"])
def test_a_wait_that_was_cancelled_does_not_end_a_stream(host: MemoryHost, kind: Kind) -> None:
    """Neither does a failure: who asks again goes on."""
    host.database.modules.put(VOTER.encode())
    options = Options(modules=host.database.modules, reconnect_s=0)

    async def scenario() -> list[Any]:
        client = host.connect_async(kind, options=options)
        await client.transaction(deploy=deploy())
        votes = client.stream("voter.votes")
        waiting = asyncio.ensure_future(anext(votes))
        await asyncio.wait([waiting], timeout=0.05)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        await client.call("voter.vote", phone=1, who="ann")
        host.faults.refused = 1
        with pytest.raises(NotConnectedError):
            await anext(votes)
        return [(await anext(votes)).record]

    assert host.portal.call(scenario()) == [{"who": "ann"}]


@pytest.mark.parametrize("name", ["voter", "nobody.votes", "voter.votes.x", "", "a/b", "voter.é"])
def test_a_name_that_is_no_streams(voting: Any, name: str) -> None:
    with pytest.raises(NoSuchStreamError):
        next(voting.stream(name))


def test_a_stream_of_which_nothing_has_come(voting: Any) -> None:
    assert list(voting.stream("voter.votes", end=True)) == []


@pytest.mark.parametrize("after", [-1, (1, -1), 2**63, (1, 2, 3)])
def test_what_is_no_place(voting: Any, after: Any) -> None:
    with pytest.raises(InvalidParameterError):
        next(voting.stream("voter.votes", after=after))


def test_lost_connections_neither_lose_nor_repeat(voting: Any, host: MemoryHost) -> None:
    for number in range(6):
        vote(voting, number)
    host.faults.lost = 2
    assert len(list(voting.stream("voter.votes", end=True))) == 6
    assert host.faults.lost == 0


def served(database: MemoryDatabase, **limits: Any) -> InProcess:
    made = FacadeSettings(**limits)
    return InProcess(create_app(database.model, database.log, database.changes, made))


async def voted(client: InProcess, database: MemoryDatabase, count: int) -> None:
    database.modules.put(VOTER.encode())
    body = json.dumps({"id": "deploy", "deploy": deploy()}).encode()
    assert (await client.request("POST", "/v1/transactions", body)).status == 200
    for number in range(count):
        keys = [f"phone/{number}", "$flows/voter"]
        args = {"phone": number, "who": "ann"}
        call = {"procedure": "voter.vote", "args": args, "keys": keys}
        body = json.dumps({"id": f"v{number}", "call": call}).encode()
        assert (await client.request("POST", "/v1/transactions", body)).json()["code"] is None


@scenario
async def test_pages_go_on_where_the_last_one_ended() -> None:
    database = MemoryDatabase()
    async with served(database) as client:
        await voted(client, database, 5)
        target = "/v1/streams/voter.votes?limit=2"
        seqs: list[int] = []
        more, cursor = True, ""
        while more:
            page = (await client.request("GET", target + cursor)).json()
            seqs += [record["seq"] for record in page["records"]]
            assert len(page["records"]) <= 2
            more, cursor = page["more"], f"&cursor={page['cursor']}"
        assert len(seqs) == 5
        assert seqs == sorted(set(seqs))
        page = (await client.request("GET", target + f"&after={seqs[2]}")).json()
        assert [record["seq"] for record in page["records"]] == seqs[3:]


@scenario
async def test_what_is_refused() -> None:
    database = MemoryDatabase()
    async with served(database, client_streams_max=1) as client:
        await voted(client, database, 1)
        votes = "/v1/streams/voter.votes"
        page = (await client.request("GET", votes)).json()
        for query in ("limit=0", "wait=-1", "wait=nan", "wait=1e9", "after=x", "after=1.2.3",
                      "after=9999999999999999999", "cursor=x", "cursor=%00", "since=1",
                      f"after=1&cursor={page['cursor']}"):  # fmt: skip
            answer = await client.request("GET", f"{votes}?{query}")
            assert (answer.status, answer.problem) == (400, "invalid-parameter"), query
        other = f"/v1/streams/voter.counted?cursor={page['cursor']}"
        assert (await client.request("GET", other)).problem == "invalid-parameter"
        for name in ("voter", "nobody.votes", "..", "%FF", "%2e%2e", ""):
            answer = await client.request("GET", f"/v1/streams/{name}")
            assert answer.status == 404, name
        assert (await client.request("POST", votes)).problem == "method-not-allowed"


@scenario
async def test_those_who_wait_are_counted() -> None:
    database = MemoryDatabase()
    async with served(database, client_streams_max=1) as client:
        await voted(client, database, 1)
        votes = "/v1/streams/voter.votes"
        votes += f"?cursor={(await client.request('GET', votes)).json()['cursor']}"
        two = [asyncio.ensure_future(client.request("GET", f"{votes}&wait=9")) for _ in "ab"]
        refused, (waiting,) = await asyncio.wait(two, return_when=asyncio.FIRST_COMPLETED)
        answer = refused.pop().result()
        assert (answer.status, answer.problem) == (429, "too-many-requests")
        assert answer.headers["retry-after"]
        assert (await client.request("GET", votes)).json()["records"] == []
        database.changes.streams.put(*emitted("voter.votes", 99))
        assert [record["seq"] for record in (await waiting).json()["records"]] == [99]


@scenario
async def test_streams_have_scopes_of_their_own() -> None:
    database = MemoryDatabase()
    async with served(database) as client:
        await voted(client, database, 1)

    def known(secret: str, *read: str) -> tuple[bytes, Caller]:
        return hashlib.sha256(secret.encode()).digest(), Caller(secret, read)

    tokens = Tokens([known("keys", "phone/"), known("votes", "$streams/voter.v"), known("all", "")])
    app = create_app(database.model, database.log, database.changes, FacadeSettings(), tokens)
    async with InProcess(app) as client:
        for token, name, status in (
            ("keys", "votes", 403), ("votes", "votes", 200), ("votes", "counted", 403),
            ("all", "counted", 200),
        ):  # fmt: skip
            headers = {"authorization": f"Bearer {token}"}
            answer = await client.request("GET", f"/v1/streams/voter.{name}", headers=headers)
            assert answer.status == status, (token, name)
        assert (await client.request("GET", "/v1/streams/voter.votes")).status == 401


def emitted(stream: str, seq: int, index: int = 1) -> tuple[bytes, bytes]:
    value = {"stream": stream, "seq": seq, "index": index, "ts_ms": 1, "id": "t", "batch": 1}
    return stream.encode(), json.dumps({**value, "record": seq}).encode()


async def rest(feed: StreamFeed, place: StreamPosition) -> list[int]:
    """The seqs of all that there is after a place."""
    found: list[int] = []
    page = EmittedPage([], place, True)
    while page.more:
        page = await feed.page(page.place, PAGE, 0)
        found += seqs_of(page)
    return found


def seqs_of(page: EmittedPage) -> list[int]:
    return [json.loads(value)["seq"] for value in page.values]


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 5)), max_size=60),
    st.integers(1, 4_000),
    st.integers(0, 20),
)
def test_readers_get_all_once_whatever_is_kept(
    steps: list[tuple[str, bool, int]], bytes_max: int, before: int
) -> None:
    """Records come again after a crash; the feed begins in the middle, and forgets early; its
    source fails, and what it had read before comes once more.
    """

    async def run() -> None:
        source = MemoryStreams()
        feed = StreamFeed(source, bytes_max, 4)
        seqs: dict[str, int] = {}
        written: dict[str, list[int]] = {name: [] for name in "abc"}
        got: dict[str, list[int]] = {name: [] for name in "abc"}
        places = {name: StreamPosition(name) for name in "abc"}
        late: list[StreamRow] = []
        for number, (name, repeated, reader) in enumerate(steps):
            if number == before:
                await feed.start()
            if repeated and written[name]:
                for seq in written[name][-2:]:
                    source.put(*emitted(name, seq))
            else:
                seqs[name] = seqs.get(name, 0) + 1
                written[name].append(seqs[name])
                source.put(*emitted(name, seqs[name]))
            if not source.failed():
                feed.publish(late)
                late = []
            if reader < 3 and number >= before:
                wanted = "abc"[reader]
                page = await feed.page(places[wanted], PAGE, 0)
                got[wanted] += seqs_of(page)
                places[wanted] = page.place
            elif reader == 5 and number >= before and not source.failed():
                late = source.all[-2:]
                source.fail()
        for name in "abc":
            assert got[name] + await rest(feed, places[name]) == written[name]
            half = written[name][len(written[name]) // 2 :]
            if half:
                assert await rest(feed, StreamPosition(name, half[0], 1)) == half[1:]

    asyncio.run(run())


@scenario
async def test_readers_wait_and_leave_nothing_behind() -> None:
    source = MemoryStreams()
    feed = StreamFeed(source, 10_000, 4)
    place = (await feed.page(StreamPosition("a"), PAGE, 0)).place
    waiting = [asyncio.ensure_future(feed.page(place, PAGE, 60)) for _ in range(3)]
    await until(lambda: feed.waiting == 3)
    source.put(*emitted("b", 1))
    source.put(*emitted("a", 2))
    found = [await each for each in waiting]
    assert [seqs_of(page) for page in found] == [[2]] * 3
    assert (await feed.page(found[0].place, PAGE, 0.001)).values == []
    left = asyncio.ensure_future(feed.page(found[0].place, PAGE, 60))
    await until(lambda: feed.waiting == 1)
    left.cancel()
    await asyncio.wait([left])
    assert feed.waiting == 0


@scenario
async def test_a_stream_that_cannot_be_followed_says_so() -> None:
    """Who waits, and who asks for what there is; what is kept is still given."""
    source = MemoryStreams()
    feed = StreamFeed(source, 10_000, 4)
    begin = (await feed.page(StreamPosition("a"), PAGE, 0)).place
    source.put(*emitted("a", 2))
    source.ended = "bank.streams cannot be read"
    found = await feed.page(begin, PAGE, 0)
    assert seqs_of(found) == [2]
    for wait_s in (0, 0.001):
        with pytest.raises(LogFaultError, match=r"bank\.streams cannot be read"):
            await feed.page(found.place, PAGE, wait_s)
    source.ended = None
    assert (await feed.page(found.place, PAGE, 0)).values == []


@pytest.mark.parametrize("bytes_max", [1, 900, 10_000])
@scenario
async def test_a_source_that_has_failed_is_started_again_and_nothing_is_missed(
    bytes_max: int,
) -> None:
    source = MemoryStreams()
    feed = StreamFeed(source, bytes_max, 4)
    await feed.start()
    source.put(*emitted("a", 1))
    begin = (await feed.page(StreamPosition("a"), PAGE, 0)).place
    source.fail()
    for seq in (2, 3):
        source.put(*emitted("a", seq))
    assert seqs_of(await feed.page(begin, PAGE, 0)) == [2, 3]
    feed.publish(source.all[1:2])  # what had been read before comes late
    assert await rest(feed, StreamPosition("a", 2, 1, 2)) == [3]
    for seq in (4, 5):
        source.put(*emitted("a", seq))
    assert await rest(feed, begin) == [2, 3, 4, 5]


@scenario
async def test_only_some_may_read_what_is_not_kept() -> None:
    source = MemoryStreams()
    source.put(*emitted("a", 1))
    feed = StreamFeed(source, 10_000, 0)
    with pytest.raises(ProblemError, match="old records"):
        await feed.page(StreamPosition("a"), PAGE, 0)


@scenario
async def test_something_else_in_the_topic() -> None:
    source = MemoryStreams()
    feed = StreamFeed(source, 10_000, 1)
    await feed.start()
    source.put(b"a", b"{}")
    with pytest.raises(RecordError, match="is this the topic"):
        await feed.page(StreamPosition("a"), PAGE, 0)


@pytest.mark.parametrize(
    ("name", "murmur2"),
    [
        ("21", -973932308), ("foobar", -790332482), ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829), ("abc", 479470107),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)  # fmt: skip
def test_the_partition_is_the_one_of_kafkas_partitioner(name: str, murmur2: int) -> None:
    """The hashes are those that Kafka's own tests have (UtilsTest)."""
    for partitions in (1, 4, 7, 1024):
        assert partition_of(name, partitions) == (murmur2 & 0x7FFFFFFF) % partitions
