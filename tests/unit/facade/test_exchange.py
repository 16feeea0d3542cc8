"""Whatever an answer is, a client reads it as it was sent; what is no HTTP is not written."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import h11
import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from streamydb.facade.connections import Exchange

SEEDS = range(60)
NAMES = [b"etag", b"vary", b"streamydb-time", b"x-content-type-options"]


class Wire(asyncio.Transport):
    """A transport that remembers what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        assert not self.closed
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed = True


def exchange_of(wire: Wire, method: str = "GET", version: str = "1.1") -> Exchange:
    log = logging.getLogger("test")
    scope: Any = {"type": "http", "method": method, "http_version": version}
    return Exchange(
        scope, wire, FlowControl(wire), log, log, False, [(b"date", b"now")], asyncio.Event(),
        False, version == "1.1", lambda: None,
    )  # fmt: skip


async def send(exchange: Exchange, status: int, headers: Any, parts: list[bytes]) -> None:
    await exchange.send({"type": "http.response.start", "status": status, "headers": headers})
    for n, part in enumerate(parts):
        more = n < len(parts) - 1
        await exchange.send({"type": "http.response.body", "body": part, "more_body": more})


def read(wire: Wire, method: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """What a client of another library reads."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(b"".join(wire.writes))
    if wire.closed:
        client.receive_data(b"")
    head = client.next_event()
    assert isinstance(head, h11.Response)
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    return head.status_code, list(head.headers), body


@pytest.mark.randomized
@pytest.mark.parametrize("seed", SEEDS)
def test_a_client_reads_what_was_sent(seed: int) -> None:
    rng = random.Random(seed)
    method, version = rng.choice(["GET", "GET", "HEAD"]), rng.choice(["1.1", "1.1", "1.0"])
    status = rng.choice([200, 200, 204, 304, 404])
    has_body = method != "HEAD" and status not in {204, 304}
    size = rng.randrange(4)
    parts = [rng.randbytes(rng.randrange(9)) if has_body else b"" for _ in range(size + 1)]
    headers = [(rng.choice(NAMES), b"v%d" % n) for n in range(rng.randrange(5))]
    if rng.random() < 0.5 and status not in {204, 304}:
        headers.append((b"content-length", b"%d" % len(b"".join(parts))))
    if rng.random() < 0.2:
        headers.append((b"connection", b"close"))
    wire = Wire()
    exchange = exchange_of(wire, method, version)
    asyncio.run(send(exchange, status, headers, parts))
    assert exchange.response_complete
    assert len(wire.writes) == len(parts), "the head goes out with the first part"
    found, shown, body = read(wire, method)
    assert (found, body) == (status, b"".join(parts))
    assert [each for each in shown if each in headers] == headers
    assert wire.closed == ((b"connection", b"close") in shown)
    assert wire.closed or (version == "1.1" and (b"connection", b"close") not in headers)


@pytest.mark.parametrize("place", ["name", "value"])
def test_no_header_ends_in_another_one(place: str) -> None:
    for code in [*range(0x09), *range(0x0A, 0x20), 0x7F]:
        for text in (b"a%c", b"%ca", b"a%cb", b"\r\n%c", b"a\r\n%c: b"):
            bad = text % code
            header = (bad, b"v") if place == "name" else (b"etag", bad)
            for headers in ([header], [(b"vary", b"x"), header], [header, (b"vary", b"x")]):
                wire = Wire()
                with pytest.raises(RuntimeError):
                    asyncio.run(send(exchange_of(wire), 200, headers, [b""]))
                assert not wire.writes


@pytest.mark.parametrize("parts", [[b"abc"], [b"a", b""], [b"ab", b"c"], [b"a", b"b", b"c"]])
def test_a_body_of_another_length_is_a_fault(parts: list[bytes]) -> None:
    wire = Wire()
    with pytest.raises(RuntimeError):
        asyncio.run(send(exchange_of(wire), 200, [(b"content-length", b"2")], parts))


def test_messages_out_of_order_are_faults() -> None:
    async def twice() -> None:
        exchange = exchange_of(Wire())
        await send(exchange, 200, [], [])
        await send(exchange, 200, [], [])

    async def behind() -> None:
        exchange = exchange_of(Wire())
        await send(exchange, 200, [], [b""])
        await exchange.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def before() -> None:
        await exchange_of(Wire()).send(
            {"type": "http.response.body", "body": b"", "more_body": False}
        )

    for scenario in (twice, behind, before):
        with pytest.raises(RuntimeError):
            asyncio.run(scenario())


def test_a_client_that_reads_nothing_holds_the_answer_up_and_one_that_left_ends_it() -> None:
    async def scenario() -> None:
        wire = Wire()
        exchange = exchange_of(wire)
        exchange.flow.pause_writing()
        sending = asyncio.create_task(send(exchange, 200, [], [b"a", b""]))
        await asyncio.sleep(0)
        assert not wire.writes
        exchange.disconnected = True
        exchange.flow.resume_writing()
        await sending
        assert not wire.writes

    asyncio.run(scenario())
