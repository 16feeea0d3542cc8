"""Random requests in random pieces: all are answered, and what stays half a request is cut off."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from http.client import parse_headers
from selectors import EVENT_READ, DefaultSelector
from socket import create_connection, socket

import pytest

from streamydb.facade import FacadeSettings
from streamydb.testing.memory import MemoryDatabase
from tests.support.seeds import seeds
from tests.support.served import serving

pytestmark = pytest.mark.randomized

CONNECTIONS = 40
HEAD_S = 1.5
SLOW_S = 0.1
HOST = b" HTTP/1.1\r\nHost: 127.0.0.1\r\n"
REQUESTS = {
    b"GET /v1/limits" + HOST + b"\r\n": 200,
    b"GET /v1/kv/absent" + HOST + b"\r\n": 404,
    b"PUT /v1/kv/a" + HOST + b"Content-Length: 1\r\n\r\n1": 504,  # nobody executes it
}


def readable(channels: Sequence[socket], timeout_s: float) -> int:
    """Wait until one has something to tell, also that it was closed; how many have."""
    with DefaultSelector() as selector:
        for channel in channels:
            selector.register(channel, EVENT_READ)
        return len(selector.select(timeout_s))


class Told:
    """A connection, what it has sent, and what must come of it.

    Attributes:
        half: the last bytes are a part of a request's head.
    """

    def __init__(self, dice: random.Random, port: int) -> None:
        self.channel: socket = create_connection(("127.0.0.1", port), 60)
        self.stream = self.channel.makefile("rb")
        whole = dice.choices(list(REQUESTS), k=dice.randint(0, 3))
        self.statuses = [REQUESTS[each] for each in whole]
        head = dice.choice(list(REQUESTS)).partition(b"\r\n\r\n")[0] + b"\r\n"
        rest = head[: dice.randint(1, len(head))] if dice.random() < 0.6 else b""
        self.half = bool(rest) or not whole
        self._send(dice, b"".join(whole) + rest)

    def _send(self, dice: random.Random, data: bytes) -> None:
        cuts = sorted(dice.randint(0, len(data)) for _ in range(dice.choice([0, 0, 1, 3])))
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            self.channel.sendall(data[begin:end])
            if dice.random() < 0.3:  # sometimes an answer is under way, or there
                readable([self.channel], dice.choice([0.001, 2 * SLOW_S / 3]))

    def answers(self) -> list[int]:
        """Read an answer for each whole request; their statuses."""
        found = []
        for _ in self.statuses:
            found.append(int(self.stream.readline().split()[1]))
            headers = parse_headers(self.stream)
            self.stream.read(int(headers["content-length"]))
        return found


@pytest.mark.parametrize("seed", range(seeds(2)))
def test_whole_requests_are_answered_and_halves_cut_off(seed: int) -> None:
    dice = random.Random(seed)
    database = MemoryDatabase()
    database.executing = False
    limits = FacadeSettings(port=0, head_timeout_s=HEAD_S, verdict_timeout_s=SLOW_S)
    with serving(limits, database) as facade, ExitStack() as open_ones:
        port = int(facade.url.rsplit(":", 1)[1])
        told = [Told(dice, port) for _ in range(CONNECTIONS)]
        for one in told:
            open_ones.enter_context(one.channel)
            open_ones.enter_context(one.stream)
            assert one.answers() == one.statuses
        ended_s = time.monotonic() + HEAD_S
        for one in told:
            if one.half:
                assert one.stream.read(1) == b"", "half a request was waited for"
        assert time.monotonic() - ended_s < 30, "only an idle connection lives so long"
        idle = [one.channel for one in told if not one.half]
        assert idle
        assert readable(idle, max(0.0, ended_s - time.monotonic())) == 0, "an idle one was closed"
