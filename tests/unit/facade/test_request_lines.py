"""Request lines and hosts over sockets: the answers that the standards demand."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.facade import FacadeSettings
from streamydb.facade.request_target import WHOLE, host_name, method_of, read_target
from streamydb.testing.memory import MemoryDatabase
from tests.support.seeds import seeds
from tests.support.served import serving

HOST = b"Host: 127.0.0.1\r\n"


class Told(NamedTuple):
    """An answer: its status, its problem type, the framing of its body, and what it allows."""

    status: int
    problem: str
    connection: str
    framing: str
    allow: str


def ask(port: int, sent: bytes) -> Told:
    """Send bytes and read one answer."""
    with socket.create_connection(("127.0.0.1", port), 20) as channel:
        channel.sendall(sent)
        with channel.makefile("rb") as stream:
            status = int(stream.readline().split()[1])
            headers: dict[str, str] = {}
            while (line := stream.readline().strip()) != b"":
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.lower()] = value.strip()
            framing = next((n for n in ("transfer-encoding", "content-length") if n in headers), "")
            size = 0 if sent.startswith(b"HEAD") else int(headers.get("content-length", "0"))
            body = stream.read(-1 if headers.get("connection") == "close" else size)
    problem = re.search(rb'"type":"/problems/([a-z-]+)"', body)
    return Told(
        status, problem[1].decode() if problem else "", headers.get("connection", ""), framing,
        headers.get("allow", ""),
    )  # fmt: skip


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A facade that is answered for on loopback."""
    with serving(FacadeSettings(port=0), MemoryDatabase()) as facade:
        yield int(facade.url.rsplit(":", 1)[1])


def line(method: str, target: str, version: str = "1.1", headers: bytes = HOST) -> bytes:
    return f"{method} {target} HTTP/{version}\r\n".encode("latin-1") + headers + b"\r\n"


LIVE = "/health/live"
LINES = [
    (line("GET", f"http://127.0.0.1{LIVE}"), 200, ""),
    (line("GET", f"HTTP://127.0.0.1:8080{LIVE}"), 200, ""),
    (line("GET", f"https://127.0.0.1{LIVE}"), 200, ""),
    (line("GET", f"http://[::1]:80{LIVE}"), 200, ""),
    (line("GET", "http://127.0.0.1"), 200, ""),
    (line("GET", "http://127.0.0.1?x=1"), 400, "invalid-parameter"),
    (line("GET", "http://evil.example/v1/limits"), 421, "misdirected"),
    (line("GET", "http://127.0.0.1/v1/limits", headers=b"Host: evil.example\r\n"), 200, ""),
    (line("GET", "http://a@127.0.0.1/v1/limits"), 400, "invalid-parameter"),
    (line("GET", "http:///v1/limits"), 400, "invalid-parameter"),
    (line("GET", "http:/v1/limits"), 400, "invalid-parameter"),
    (line("GET", "ftp://127.0.0.1/v1/limits"), 400, "invalid-parameter"),
    (line("OPTIONS", "*"), 204, ""),
    (line("OPTIONS", "http://127.0.0.1"), 204, ""),
    (line("OPTIONS", "*", headers=b"Host: evil.example\r\n"), 421, "misdirected"),
    (line("GET", "*"), 400, "invalid-parameter"),
    (line("CONNECT", "127.0.0.1:80"), 405, "method-not-allowed"),
    (line("CONNECT", "evil.example:80"), 421, "misdirected"),
    (line("CONNECT", "/v1/limits"), 400, "invalid-parameter"),
    (line("GET", "127.0.0.1:80"), 400, "invalid-parameter"),
    (line("GET", "v1/limits"), 400, "invalid-parameter"),
    (line("GET", "?at=1"), 400, "invalid-parameter"),
    (line("TRACE", "/v1/limits"), 405, "method-not-allowed"),
    (line("BREW", "/v1/limits"), 405, "method-not-allowed"),
    (line("get", "/v1/limits"), 405, "method-not-allowed"),
    (line("PROPFIND", "/v1/limits"), 405, "method-not-allowed"),
    (line("GET", " /v1/limits"), 400, "invalid-parameter"),
    (line("GET", "/v1/limits "), 400, "invalid-parameter"),
    (line("GET", "/v1/\xe9"), 400, "invalid-parameter"),
    (b"\r\n" + line("GET", "/v1/limits"), 200, ""),
    (line("GET", "/v1/limits").replace(b"\r\n", b"\n"), 400, "invalid-parameter"),
    (line("GET", "/v1/limits", "2.0"), 400, "invalid-parameter"),
    (line("GET", "/v1/limits", "1.2"), 400, "invalid-parameter"),
    (line("GET", "/v1/limits", "0.9"), 400, "invalid-parameter"),
    (b"GET /v1/limits\r\n\r\n", 400, "invalid-parameter"),
    (line("GET", "/v1/limits", "1.0"), 200, ""),
    (line("GET", "/v1/limits", "1.0", HOST + b"Connection: keep-alive\r\n"), 200, ""),
    (line("GET", LIVE, "1.0", b""), 200, ""),
    (line("GET", LIVE, headers=b""), 400, "invalid-parameter"),
    (line("GET", LIVE, headers=HOST + HOST), 400, "invalid-parameter"),
    (line("GET", LIVE, headers=b"Host: 127.0.0.1:abc\r\n"), 400, "invalid-parameter"),
    (line("GET", LIVE, headers=b"Host: [::1\r\n"), 400, "invalid-parameter"),
    (line("GET", LIVE, headers=b"Host: a b\r\n"), 400, "invalid-parameter"),
    (line("GET", LIVE, headers=b"Host: a@127.0.0.1\r\n"), 400, "invalid-parameter"),
    (line("GET", LIVE, headers=b"Host: 127.0.0.1:\r\n"), 200, ""),
    (line("GET", "//v1/kv/a"), 404, "no-such-endpoint"),
    (line("GET", "//v1/limits"), 404, "no-such-endpoint"),
    (line("GET", "/v1//limits"), 404, "no-such-endpoint"),
    (line("GET", "/v1%2Flimits"), 404, "no-such-endpoint"),
    (line("GET", "/v1%2Fkv/a"), 404, "no-such-endpoint"),
    (line("GET", "/v1/%2e%2e/v1/limits"), 404, "no-such-endpoint"),
    (line("GET", "/v1/%zz"), 404, "no-such-endpoint"),
    (line("GET", "/v1/k%76/a"), 404, "key-not-found"),
    (line("GET", "/%76%31/limit%73"), 200, ""),
    (line("GET", "/v1/k%76/"), 400, "invalid-key"),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "status", "problem"), LINES)
def test_a_request_line_is_answered_as_the_standard_says(
    port: int, sent: bytes, status: int, problem: str
) -> None:
    found = ask(port, sent)
    assert (found.status, found.problem) == (status, problem)
    assert (status in {204, 405}) is bool(found.allow)


PUT = b"PUT /v1/kv/a HTTP/1.1\r\n" + HOST
CHUNKED = b"\r\n1\r\n1\r\n0\r\n\r\n"
FRAMES = [
    (PUT + b"Transfer-Encoding: Chunked\r\n" + CHUNKED, 200),
    (PUT + b"Transfer-Encoding: gzip, chunked\r\n" + CHUNKED, 400),
    (PUT + b"Transfer-Encoding: gzip\r\n" + CHUNKED, 400),
    (PUT + b"Transfer-Encoding: identity\r\n" + CHUNKED, 400),
    (PUT + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" + CHUNKED, 400),
    (PUT + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n" + CHUNKED, 400),
    (PUT.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n" + CHUNKED, 400),
    (PUT + b"Content-Length: +1\r\n\r\n1", 400),
]


@pytest.mark.parametrize(("sent", "status"), FRAMES)
def test_a_body_whose_end_is_not_certain_is_refused(port: int, sent: bytes, status: int) -> None:
    found = ask(port, sent)
    assert found.status == status
    assert (found.connection == "close") is (status == 400)


def test_a_client_of_http_1_0_gets_a_stream_without_chunks(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 20) as channel:
        channel.sendall(line("GET", "/v1/changes", "1.0"))
        with channel.makefile("rb") as stream:
            head = [each.lower() for each in iter(stream.readline, b"\r\n")]
            assert stream.readline() == b"retry: 1000\n"
    assert head[0].split()[1] == b"200"
    assert b"connection: close\r\n" in head
    assert not any(each.startswith((b"transfer-encoding", b"content-length")) for each in head)


def test_a_line_may_come_byte_by_byte_and_after_another_request(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 20) as channel:
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for target in ("/v1/limits", f"http://127.0.0.1{LIVE}"):
            for byte in b"\r\n" + line("HEAD", target):
                channel.sendall(bytes([byte]))
            assert channel.recv(65_536).startswith(b"HTTP/1.1 200")
        channel.sendall(line("HEAD", LIVE) + line("HEAD", f"http://127.0.0.1{LIVE}"))
        found = b""
        while found.count(b"\r\n\r\n") < 2:
            found += channel.recv(65_536)
        assert found.count(b"HTTP/1.1 200") == 2


METHODS = st.sampled_from(["GET", "GET", "HEAD", "OPTIONS", "POST", "PUT", "CONNECT", "X", "get"])
PIECES = st.sampled_from(
    ["/", "/v1", "/kv", "/a", "limits", "%76", "%2F", "%2e", "//", "*", "?", "?at=1", "#b", ":",
     "http://", "https://", "ws://", "127.0.0.1", "[::1]", "evil", "@", ":80", ":x", " ", "\t",
     "\x7f", "\xe9", "%", "health/live"]
)  # fmt: skip
TARGETS = st.lists(PIECES, min_size=1, max_size=5).map("".join) | st.sampled_from(
    ["/v1/limits", "*", "/v1/kv/a", f"http://127.0.0.1{LIVE}", "127.0.0.1:80", "/"]
)
VERSIONS = st.sampled_from(["1.1", "1.1", "1.1", "1.0", "2.0", "1.2", "x", "1.1 ", ""])
HOSTS = st.sampled_from(
    [HOST, HOST, HOST, b"", HOST + HOST, b"Host: evil\r\n", b"Host: 127.0.0.1:x\r\n", b"Host:\r\n"]
)


def has_target(method: str, target: str) -> bool:
    """Whether a method may have a target (RFC 9112, section 3.2)."""
    try:
        read_target(method.encode(), target.encode("latin-1"))
    except ValueError:
        return False
    return True


@pytest.mark.randomized
@settings(max_examples=seeds(600, 300), deadline=None)
@given(method=METHODS, target=TARGETS, version=VERSIONS, host=HOSTS)
def test_any_request_line_that_is_none_is_refused(
    port: int, method: str, target: str, version: str, host: bytes
) -> None:
    sent = line(method, target, version, host)
    found = ask(port, sent)
    assert found.status != 500
    if method_of(sent) is None:
        assert found.status == 400
    elif method_of(sent) == "":
        assert found.status == 405
    elif not has_target(method, target) or host == HOST + HOST:
        assert found.status == 400


@pytest.mark.parametrize(
    ("field", "name"),
    [("a", "a"), ("A.Example:80", "a.example"), ("[::1]:1", "::1"), ("[::1]", "::1"), ("", ""),
     ("a:", "a"), ("a:x", None), ("[1]", None), ("[::1", None), ("a/b", None), ("a@b", None),
     ("a:1:2", None), ("%41", "%41"), ("%4", None), ("::1", None)],
)  # fmt: skip
def test_hosts(field: str, name: str | None) -> None:
    assert host_name(field) == name


def test_a_target_has_one_of_four_forms() -> None:
    assert read_target(b"GET", b"/a?b?c") == (b"/a", b"b?c", None)
    assert read_target(b"GET", b"//a") == (b"//a", b"", None)
    assert read_target(b"PUT", b"http://A:1/b?c") == (b"/b", b"c", b"A:1")
    assert read_target(b"PUT", b"http://a") == (b"/", b"", b"a")
    assert read_target(b"OPTIONS", b"http://a") == (WHOLE.encode(), b"", b"a")
    assert read_target(b"OPTIONS", b"http://a?") == (b"/", b"", b"a")
    assert read_target(b"CONNECT", b"a:1") == (WHOLE.encode(), b"", b"a:1")
    for method, target in ((b"CONNECT", b"a"), (b"GET", b"a:1"), (b"GET", b"*"), (b"GET", b"")):
        with pytest.raises(ValueError, match="target"):
            read_target(method, target)
