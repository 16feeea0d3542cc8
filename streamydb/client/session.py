"""The session: a client's memory between calls, and its rules for trying again."""

from __future__ import annotations

import secrets
import threading
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from streamydb.client.errors import ClientError
from streamydb.client.forks import Owned
from streamydb.client.problems import InvalidParameterError
from streamydb.client.requests import MARGIN_S, Consistency, Flow, Freshness, Pause, R, Request
from streamydb.limits import DEADLINE_AHEAD_MS_MAX, INTEGER_MAX
from streamydb.procedures.modules import Modules

_HEADER: Final = "Streamydb-Generation"
_SUCCESS: Final = range(200, 300)
_GONE: Final = 410
_OTHER: Final = b"other-generation"


class Generation:
    """The generation that a client has heard of; its loss calls ``on_lost``."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.on_lost: Callable[[], None] = lambda: None

    def headers(self) -> dict[str, str]:
        """Return the headers that say it, none while it is not known."""
        return {} if self.text is None else {_HEADER: self.text}

    def hear(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Take it from an answer; the first one counts until the database says that it is gone. A
        facade of an earlier release tells none, and is told none. ``headers`` are found by lower
        case.
        """
        if status in _SUCCESS:
            if self.text is None:
                self.text = headers.get(_HEADER.lower())
        elif status == _GONE and _OTHER in body:
            self.lose()

    def lose(self) -> None:
        """Forget it, and all that is of it."""
        self.text = None
        self.on_lost()


class Correction:
    """The difference between another clock and this machine's, as far as it is known. Thread-safe.

    ``behind_ms``: how far this machine is behind the other clock; negative: ahead of it.
    """

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self.behind_ms = 0
        self._wall_ms = wall_ms
        self._lock: Owned[threading.Lock] = Owned(threading.Lock)

    def now_ms(self) -> int:
        return self._wall_ms() + self.behind_ms

    def learn(self, stamp_ms: int, sent_ms: int | None) -> None:
        """Take a stamp of the other clock, which has just come. ``sent_ms``: this machine's time
        before the stamp was made; None: nobody knows. Then the stamp may be old, and only says that
        the other clock is not behind it.
        """
        with self._lock.get():
            behind_min = stamp_ms - self._wall_ms()
            behind_max = None if sent_ms is None else max(behind_min, stamp_ms - sent_ms)
            known = max(self.behind_ms, behind_min)
            self.behind_ms = known if behind_max is None else min(known, behind_max)


_SHORTEST_S: Final = 0.1  # time that is left and not divided any more
_AHEAD_S: Final = DEADLINE_AHEAD_MS_MAX / 2_000
"""Farthest deadline that is set: the log refuses one that is twice as far."""


@dataclass(frozen=True, slots=True)
class Options:
    """The behaviour of a client, unless a call says otherwise.

    Attributes:
        consistency: which state reads show.
        timeout_s: how long a call tries what fails for reasons that may pass, however often; it may
            last 5 s longer when nothing answers. If a copy came after the deadline, the verdict of
            an earlier one is looked for, for 10 s at least.
        attempt_s: how long a facade may take to answer a read, or to give a verdict, before it is
            asked again; 5 s later the connection counts as dead. Queries may take all the time.
        conflicts_max: how often a function under `run` is called.
        backoff_s: mean of the first pause, doubled with each.
        backoff_max_s: mean of the longest pauses, which last twice as long at the most.
        clock_skew_s: how far the brokers' clocks may be ahead of this machine's.
        reconnect_s: how long `watch` tries to connect again.
        page_entries: entries that a scan asks for at once.
        read_keys: keys that a read asks for at once.
        modules: where the code of stored procedures is, to find the keys of calls.
    """

    consistency: Consistency = "strong"
    timeout_s: float = 30
    attempt_s: float = 10
    conflicts_max: int = 30
    backoff_s: float = 0.02
    backoff_max_s: float = 0.5
    clock_skew_s: float = 30
    reconnect_s: float = 120
    page_entries: int = 500
    read_keys: int = 1_000
    modules: Modules | None = None


def new_id() -> str:
    """Return a UUID of version 7 (RFC 9562): by its time a facade finds a verdict of long ago."""
    number = uuid.uuid4().int & ((1 << 80) - 1) | (time.time_ns() // 1_000_000) << 80
    text = f"{number & ~(0xF << 76) | 0x7 << 76:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_seq(seq: object) -> bool:
    """Return True if it can be a seq, or 0, which is before the first one."""
    return type(seq) is int and 0 <= seq <= INTEGER_MAX


@dataclass(slots=True)
class Session:
    """The state of one client. Thread-safe.

    Attributes:
        options: its defaults.
        clock: seconds of a clock that only goes forward.
        random: numbers in [0, 1).
        new_id: ids of transactions.
        wall_ms: the time of day, in ms since 1970.
        seq: the highest seq that this client has seen.
        correction: how far the time of day is from the commit times that it has seen.
        history: knows of which generation the seqs are.
    """

    options: Options = field(default_factory=Options)
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = field(default_factory=lambda: secrets.SystemRandom().random)
    new_id: Callable[[], str] = new_id
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    seq: int = 0
    correction: Correction = field(init=False)
    history: Generation = field(default_factory=Generation)
    _lock: Owned[threading.Lock] = field(default_factory=lambda: Owned(threading.Lock))

    def __post_init__(self) -> None:
        self.correction = Correction(self.wall_ms)
        self.history.on_lost = self._forget

    def _forget(self) -> None:
        with self._lock.get():
            self.seq = 0

    @property
    def behind_ms(self) -> int:
        """The time that the time of day is behind commit times; negative: ahead of them."""
        return self.correction.behind_ms

    @property
    def generation(self) -> str | None:
        """The generation of what was seen; None before the first answer."""
        return self.history.text

    def saw(
        self, seq: int, ts_ms: int = 0, sent_ms: int | None = None, generation: str | None = None
    ) -> None:
        """Remember that something as of a seq was seen. ``sent_ms``: the time of day when it was
        sent, if that was now and this is the verdict of what was sent. ``generation``: the one that
        the session of another process had.
        """
        with self._lock.get():
            if generation is not None:
                self.history.text = generation
            self.seq = max(self.seq, seq)
        if ts_ms:
            self.correction.learn(ts_ms, sent_ms)

    def deadline_ms(self, timeout_s: float | None = None) -> int:
        """Return the deadline of a transaction that is tried for so long from now on."""
        wait_s = self.options.timeout_s if timeout_s is None else timeout_s
        ahead_ms = int(1_000 * min(wait_s + MARGIN_S + self.options.clock_skew_s, _AHEAD_S))
        return self.correction.now_ms() + ahead_ms

    def freshness(self, consistency: Consistency | None = None, at: int | None = None) -> Freshness:
        """Return which state a read shall show. Raises InvalidParameterError: there is no such
        state.
        """
        level = self.options.consistency if consistency is None else consistency
        if level not in {"strong", "session", "snapshot"}:
            raise InvalidParameterError("`consistency` is strong, session or snapshot.")
        if at is not None:
            if not is_seq(at) or consistency not in {None, "snapshot"}:
                raise InvalidParameterError("`at` is a seq, and leaves no choice of consistency.")
            return Freshness(at=at)
        if level == "session":
            return self.floor(self.seq)
        return Freshness(consistency=level)

    def floor(self, seq: int) -> Freshness:
        """Ask for a state that includes a seq; any will do if there is none."""
        if seq < 1:
            return Freshness(consistency="snapshot")
        return Freshness(consistency="session", min_version=seq)

    def retry(self, timeout_s: float | None = None) -> Retry:
        return Retry(self, self.options.timeout_s if timeout_s is None else timeout_s)


class Retry:
    """Decides whether to try again, and after which pause: exponential, with full jitter.

    Only the time decides, never the number of attempts: a facade that restarts takes as long as it
    takes. Towards the end the pauses grow short, so that all of the time is used, and the last one
    ends when the time does.
    """

    def __init__(self, session: Session, timeout_s: float) -> None:
        self._session = session
        self._until = session.clock() + timeout_s
        self._pauses = 0

    def left_s(self) -> float:
        return max(0.0, self._until - self._session.clock())

    def wait_s(self) -> float:
        """Return the time of the next attempt: a part of what is left, so that it need not be the
        last.
        """
        return min(self.left_s(), self._session.options.attempt_s)

    def again(self, fault: ClientError | None) -> Pause | None:
        """Return the pause before the next attempt; None to give up."""
        left = self.left_s()
        if not left:
            return None
        asked = 0.0 if fault is None else fault.retry_after_s
        pause = asked + self.pause_s()
        if pause >= left:
            pause = left / 2 if asked < left / 2 and left > _SHORTEST_S else left
        return Pause(pause)

    def pause_s(self) -> float:
        options = self._session.options
        mean = min(options.backoff_max_s, options.backoff_s * 2.0 ** min(self._pauses, 30))
        self._pauses += 1
        return 2 * mean * self._session.random()


def perform(request: Request[R]) -> Generator[Request[R], R, R]:
    """Yield one request and return its answer, with its type."""
    answer: R = yield request
    return answer


def perform_with_retry(
    retry: Retry, make: Callable[[float], Request[R]], time_s: Callable[[], float] | None = None
) -> Flow[R]:
    """Perform a request that changes nothing; repeat it after failures that may pass. ``make``
    returns the request that may take ``time_s``, by default all the time that is left.
    """
    time_s = time_s or retry.left_s
    while True:
        try:
            return (yield from perform(make(time_s())))
        except ClientError as error:
            pause = retry.again(error) if error.retriable else None
            if pause is None:
                raise
        yield from perform(pause)


class Reconnecting:
    """Counts failures in a row, and pauses after each."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._retry: Retry | None = None

    def succeeded(self) -> None:
        self._retry = None

    def failed(self, error: ClientError) -> Flow[None]:
        """Pause before the next attempt.
        Raises ClientError: `error`, if it is of no use to try again, or has been for too long.
        """
        self._retry = self._retry or Retry(self._session, self._session.options.reconnect_s)
        if not error.retriable or not self._retry.left_s():
            raise error
        pause = self._retry.again(error)
        if pause is not None:
            yield from perform(pause)
