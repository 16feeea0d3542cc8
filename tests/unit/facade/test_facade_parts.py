"""The facade's small parts: headers, cursors, paths, and a real server on a socket."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.conditions import conditions_of
from streamydb.facade.cursors import Cursor, decode_cursor, encode_cursor
from streamydb.facade.headers import declared_bytes, idempotency_key, preference
from streamydb.facade.ports import LogPosition, ReadModel
from streamydb.facade.problems import ProblemError
from streamydb.facade.request_target import key_of, split_path, text_of
from streamydb.facade.writes import location
from streamydb.limits import KEY_BYTES_MAX
from streamydb.read_model import ReadModel as StoredModel
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from tests.support.served import serving

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)

NAMED = (b"/v1/kv/", b"/v1/transactions/")


def outcome(function: Any, *arguments: Any) -> Any:
    """What a function returns, or the problem it raises."""
    try:
        return function(*arguments)
    except ProblemError as error:
        return error


@given(st.integers(1, 2**63 - 1), TEXTS, st.none() | TEXTS, st.none() | TEXTS, TEXTS)
def test_cursors_are_read_as_they_were_written(
    at: int, prefix: str, start: str | None, end: str | None, after: str
) -> None:
    cursor = Cursor(at, prefix, start, end, after)
    text = encode_cursor(cursor)
    assert decode_cursor(text, Cursor, "a list") == cursor
    assert text.isascii()
    assert text.replace("-", "").replace("_", "").isalnum()


@given(st.text(max_size=40))
def test_any_text_is_a_cursor_or_a_problem(text: str) -> None:
    found = outcome(decode_cursor, text, Cursor, "a list")
    assert isinstance(found, Cursor) or found.problem.slug == "invalid-parameter"


@given(TEXTS.filter(bool), st.integers(0, 9), st.integers(0, 2**40))
def test_a_location_is_one_safe_line_and_leads_back(
    txn_id: str, partition: int, offset: int
) -> None:
    path, _, query = location(txn_id, LogPosition(partition, offset)).partition("?")
    assert query == f"record={partition}:{offset}"
    assert path.isascii()
    assert path.isprintable()
    scope = {"path": "changed by a server", "raw_path": path.encode(), "root_path": ""}
    start, name = split_path(scope, NAMED)
    assert text_of(name or b"") == txn_id
    assert start == "/v1/transactions/"


def test_the_longest_cursor_fits_in_an_address() -> None:
    worst = "\x01" * KEY_BYTES_MAX
    text = encode_cursor(Cursor(2**63 - 1, worst, worst, worst, worst))
    assert len(text) < FacadeSettings().target_bytes_max / 2


@pytest.mark.fault(26, "path traversal and arbitrary bytes in the path", "a key or 400")
@given(st.binary(max_size=60))
def test_any_path_is_a_key_or_a_problem(raw: bytes) -> None:
    found = outcome(key_of, raw)
    if isinstance(found, str):
        assert 1 <= len(found.encode()) <= 480
    else:
        assert found.problem.slug == "invalid-key"
        assert len(raw) < 4 or raw.decode("latin-1") not in found.detail


def test_a_mounted_facade_and_a_server_without_raw_paths() -> None:
    scope = {"path": "/db/v1/kv/a", "raw_path": b"/db/v1/kv/a%2F", "root_path": "/db"}
    assert split_path(scope, NAMED) == ("/v1/kv/", b"a%2F")
    plain: dict[str, Any] = {"path": "/v1/kv/100%/é"}
    start, name = split_path(plain, NAMED)
    assert (start, text_of(name or b"")) == ("/v1/kv/", "100%/é")
    other = {"path": "/v1/kv", "raw_path": b"/v1/kv?x=/v1/kv/a", "root_path": ""}
    assert split_path(other, NAMED) == ("/v1/kv", None)


@pytest.mark.parametrize(
    ("header", "asynchronous", "wait_s"),
    [("respond-async", True, math.inf), ("wait=5", False, 5),
     ("Respond-Async; wait=5", True, math.inf), ("respond-async, wait=10, wait=3", True, 10),
     ("wait=x", False, math.inf), ("", False, math.inf),
     ('wait="7"', False, 7), ("return=minimal", False, math.inf), ("wait=-1", False, math.inf)],
)  # fmt: skip
def test_preferences(header: str, *, asynchronous: bool, wait_s: float) -> None:
    assert preference({"prefer": header}) == (asynchronous, wait_s)


@pytest.mark.parametrize(
    ("given", "size"),
    [(None, 0), ("", 0), ("17", 17), ("9" * 5_000, 2**63 - 1), ("-1", 2**63 - 1),
     ("x", 2**63 - 1), ("\xb2", 2**63 - 1)],
)  # fmt: skip
def test_the_declared_size_of_a_body(given: str | None, size: int) -> None:
    headers = [] if given is None else [(b"content-length", given.encode("latin-1"))]
    assert declared_bytes(headers) == size


def test_conditions_compare_strongly_and_weakly() -> None:
    given = conditions_of({"if-match": '"1", W/"2",, "a,b"', "if-none-match": 'W/"2"'})
    assert [given.fails([tag]) for tag in ('"1"', '"2"', '"a,b"')] == [False, True, False]
    assert [given.is_known([tag]) for tag in ('"1"', '"2"')] == [False, True]
    assert conditions_of({"if-match": "*"}).fails([])
    with pytest.raises(ProblemError):
        conditions_of({"if-match": '"1" "2"'})


def test_idempotency_keys_are_plain_or_quoted() -> None:
    assert idempotency_key({}) is None
    assert idempotency_key({"idempotency-key": "a-1"}) == "a-1"
    assert idempotency_key({"idempotency-key": '"a-1"'}) == "a-1"
    assert idempotency_key({"idempotency-key": '"'}) == '"'


def test_the_stored_read_model_is_one_that_the_facade_reads() -> None:
    def fits(model: StoredModel) -> ReadModel:
        return model  # mypy compares the two interfaces

    assert fits.__annotations__ == {"model": "StoredModel", "return": "ReadModel"}


@contextmanager
def placed(database: MemoryDatabase, **limits: Any) -> Iterator[tuple[str, int]]:
    """Serve a database; its address."""
    with serving(FacadeSettings(port=0, **limits), database) as facade:
        yield "127.0.0.1", int(facade.url.rsplit(":", 1)[1])


def exchange(address: tuple[str, int], request: bytes) -> bytes:
    """Send bytes on a connection and return all that comes until it is closed."""
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(request)
        parts = []
        with suppress(ConnectionResetError):  # closed with some of the request unread
            while part := connection.recv(65_536):
                parts.append(part)
    return b"".join(parts)


def get(target: bytes, *headers: bytes) -> bytes:
    lines = [b"GET " + target + b" HTTP/1.1", b"Host: 127.0.0.1", b"Connection: close", *headers]
    return b"\r\n".join([*lines, b"", b""])


def test_a_real_server_takes_paths_as_they_are() -> None:
    database = MemoryDatabase()
    with placed(database) as address:
        for raw in (b"a//b", b"../..", b"%2F", b"a%20b", b"%00", b"x/", b"%C3%A9", b"a#b?"):
            put = get(b"/v1/kv/" + raw, b"Content-Length: 1").replace(b"GET", b"PUT", 1) + b"7"
            assert exchange(address, put).startswith(b"HTTP/1.1 200 ")
            answer = exchange(address, get(b"/v1/kv/" + raw))
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.endswith(b"\r\n\r\n7")
        listed = httpx.get(f"http://{address[0]}:{address[1]}/v1/kv").json()
    assert [entry["key"] for entry in listed["entries"]] == sorted(
        ["a//b", "../..", "/", "a b", "\0", "x/", "é", "a#b"], key=str.encode
    )


@pytest.mark.fault(26, "oversized and malformed requests on a socket", "400, 413, 414, 431")
def test_a_real_server_refuses_what_is_too_large_or_malformed() -> None:
    with placed(MemoryDatabase()) as address:
        large = exchange(address, get(b"/v1/kv/a", b"X: " + b"y" * 20_000))
        assert large.startswith(b"HTTP/1.1 431 ")
        assert b"/problems/headers-too-large" in large
        huge = exchange(address, get(b"/v1/kv/a", b"X: " + b"y" * 200_000))
        assert huge.startswith(b"HTTP/1.1 400 ") or not huge
        split = exchange(address, get(b"/v1/kv/a", b"Idempotency-Key: a\rX-Evil: 1"))
        assert split.startswith(b"HTTP/1.1 400 ")
        twice = exchange(address, get(b"/v1/kv/a", b"Host: evil.example"))
        assert twice.startswith(b"HTTP/1.1 400 ")
        none = exchange(address, b"GET /v1/kv/a HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert none.startswith(b"HTTP/1.1 400 ")
        other = exchange(address, get(b"/v1/kv/a").replace(b"127.0.0.1", b"evil.example"))
        assert other.startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize("piece", [b"X: yyyyyyyyyyyyyyyy\r\n", b"y" * 64], ids=["many", "one"])
def test_a_real_server_holds_no_endless_heads_or_trailers(piece: bytes) -> None:
    endless = b"".join([b"X: ", *(piece for _ in range(400_000 // len(piece)))])
    chunked = get(b"/v1/kv/a", b"Transfer-Encoding: chunked").replace(b"GET", b"PUT", 1)
    with placed(MemoryDatabase()) as address:
        head = exchange(address, get(b"/v1/kv/a")[:-2] + endless)
        assert head.startswith(b"HTTP/1.1 400 ") or not head
        trailers = exchange(address, chunked + b"1\r\n7\r\n0\r\n" + endless)
        assert trailers.startswith(b"HTTP/1.1 400 ") or not trailers


def test_trailers_are_no_headers() -> None:
    put = get(b"/v1/kv/a", b"Transfer-Encoding: chunked").replace(b"GET", b"PUT", 1)
    with placed(MemoryDatabase()) as address:
        answer = exchange(address, put + b"1\r\n7\r\n0\r\nOrigin: http://evil\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_client_that_offers_an_upgrade_is_served_as_others_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    head = b"PUT /v1/kv/a HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    offer = b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 1\r\n\r\n"
    with placed(MemoryDatabase()) as address:
        answers = exchange(address, head + offer + b"7" + get(b"/v1/kv/a"))
        assert answers.count(b"HTTP/1.1 200 ") == 2
        assert answers.endswith(b"\r\n\r\n7")
        parts = [head[:20], head[20:] + offer[:30], offer[30:], b"8", get(b"/v1/kv/a")]
        with socket.create_connection(address, timeout=20) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in parts:
                connection.sendall(part)
            received = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert received.endswith(b"\r\n\r\n8")
    assert caplog.records == []


@pytest.mark.fault(26, "line breaks in keys", "no header is injected")
def test_a_key_never_gets_into_a_header() -> None:
    with placed(MemoryDatabase()) as address:
        target = b"/v1/kv/%0D%0AX-Evil:%201"
        put = get(target, b"Content-Length: 1").replace(b"GET", b"PUT", 1) + b"7"
        assert b"evil" not in exchange(address, put).lower()
        answer = exchange(address, get(target))
        assert answer.endswith(b"\r\n\r\n7")
        assert b"evil" not in answer.lower()


def test_a_real_stream_goes_on_and_ends_with_the_server() -> None:
    database = MemoryDatabase()
    with placed(database, heartbeat_s=0.05) as address:
        base = f"http://{address[0]}:{address[1]}"
        with httpx.stream("GET", f"{base}/v1/changes?since=0", timeout=20) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 1000"
            httpx.put(f"{base}/v1/kv/a", content=b"1")
            assert next(line for line in lines if line.startswith("id")) == "id: 1"
            assert next(line for line in lines if line.startswith(":")) == ": heartbeat"


@scenario
async def test_a_part_that_fails_at_its_end_keeps_no_other_from_ending() -> None:
    """The log waits at its end until what was appended is safe."""
    database = MemoryDatabase()

    async def failing() -> None:
        raise OSError("the pool of queries hangs")

    database.changes.stop = failing  # type: ignore[method-assign]
    with pytest.raises(OSError, match="the pool of queries hangs"):
        async with InProcess(create_app(database.model, database.log, database.changes)):
            assert database.log.running
    assert not database.log.running
