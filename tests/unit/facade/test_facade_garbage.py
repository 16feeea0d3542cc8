"""A request that has been answered is gone: no collector has to find it."""

from __future__ import annotations

import gc
import json

import pytest

from tests.unit.facade.test_facade_connections import connected, served, taken

TIMES = 20


def request(method: str, target: str, body: object = None, headers: str = "") -> bytes:
    sent = b"" if body is None else json.dumps(body).encode()
    if sent:
        headers += f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n"
    return f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode() + sent


PUT = {"updates": [{"op": "put", "key": "k", "value": 1}]}

REQUESTS = {
    "live": (200, request("GET", "/health/live")),
    "metrics": (200, request("GET", "/metrics")),
    "put": (200, request("PUT", "/v1/kv/a", "x")),
    "put through the router": (412, request("PUT", "/v1/kv/a", "x", 'If-Match: "0"\r\n')),
    "transaction": (200, request("POST", "/v1/transactions", PUT)),
    "no transaction": (422, request("POST", "/v1/transactions", {"x": 1})),
    "snapshot": (200, request("GET", "/v1/kv/a?consistency=snapshot")),
    "strong": (200, request("GET", "/v1/kv/a")),
    "absent": (404, request("GET", "/v1/kv/none")),
    "many": (200, request("POST", "/v1/read", {"keys": ["a", "b"]})),
    "list": (200, request("GET", "/v1/kv?limit=10")),
    "list through the router": (200, request("GET", "/v1/kv?limit=1&prefix=%61")),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_an_answered_request_leaves_nothing_to_the_collector(kind: str) -> None:
    expected, sent = REQUESTS[kind]
    with served() as (_, place), connected(place) as connection:

        def ask(data: bytes) -> int:
            connection.sendall(data)
            return taken(connection)[0]

        assert ask(REQUESTS["put"][1]) == 200
        for _ in range(3):
            ask(sent)
        gc.freeze()  # what other tests have left is neither looked at nor counted
        gc.disable()
        try:
            assert [ask(sent) for _ in range(TIMES)] == TIMES * [expected]
            found = gc.collect()
        finally:
            gc.enable()
    assert found < TIMES
