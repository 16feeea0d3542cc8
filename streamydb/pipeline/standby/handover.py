"""A planned hand-over: choose the next leader, ask for it, and measure the clients' pause."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from streamydb.errors import StreamyError
from streamydb.kafka import TopicNames, log_id
from streamydb.kafka.creation import existing
from streamydb.kafka.reader import ReadingError, TopicReader
from streamydb.kafka.shared_topics import MESSAGES_MAX, SharedTopics
from streamydb.pipeline.standby.position import Rank
from streamydb.records.control import Beat, Following, Handover, LeaderClaim, Message, owner_of

_SEQ: Final = re.compile(rb'"seq":(\d+),"ts_ms":(\d+)')


class TimedVerdict(NamedTuple):
    """A verdict: when it was written, its seq, and when its transaction was appended, in ms."""

    at_ms: int
    seq: int
    appended_ms: int


def written(at_ms: int, value: bytes | None) -> TimedVerdict | None:
    """A record of the results topic; None if it is not understood."""
    match = _SEQ.search(value or b"")
    return None if match is None else TimedVerdict(at_ms, int(match[1]), int(match[2]))


def longest_pause(verdicts: Iterable[TimedVerdict], begun_ms: int) -> int | None:
    """Return the longest time, in ms, in which a transaction waited and no new verdict was written.

    Of what was written after ``begun_ms``; None if nothing was. A verdict that is written again, by
    one who leads now or led before, is not a new one.
    """
    longest, last_ms, seq = None, begun_ms, 0
    for verdict in sorted(verdicts):
        if verdict.seq <= seq:
            continue
        seq = verdict.seq
        if verdict.at_ms >= begun_ms:
            waited_ms = verdict.at_ms - max(last_ms, verdict.appended_ms)
            longest = max(longest or 0, waited_ms)
            last_ms = verdict.at_ms
    return longest


_TURN_S: Final = 0.05
_LISTEN_S: Final = 1.5
_STANDBY_S: Final = 8.0
_IDLE_S: Final = 3.0
_ASK_S: Final = 2.0
_VERDICTS_MAX: Final = 2_000_000


class HandoverError(StreamyError):
    """There is no standby that is ready, or it did not take over in time."""


class HandoverResult(msgspec.Struct, frozen=True):
    """The new leader, the time that it took, and how long clients got no verdict meanwhile.

    ``pause_s`` is None if no verdict was written, or (``pause_unknown`` says why) it is not known.
    """

    leader: str
    pipeline: str
    epoch: int
    resolved: int
    seconds: float
    pause_s: float | None = None
    pause_unknown: str | None = None


_START: Final = "start a standby with `streamydb pipeline --standby`"


class Standbys:
    """The standbys' messages about themselves, and the choice of the next leader.

    ``to``: the name of the one that is wanted; empty: any.
    """

    def __init__(self, to: str) -> None:
        self._to = to
        self._told: int | None = None
        self._leads = self._owner = ""
        self._heard: dict[str, Following] = {}

    def take(self, message: Message) -> None:
        if isinstance(message, Beat):
            self._told = message.resolved if self._told is None else self._told
            self._leads, self._owner = message.name, owner_of(message.pipeline)
            self._heard = {
                one: said
                for one, said in self._heard.items()
                if one != message.pipeline and self._is_candidate(said)
            }
        elif isinstance(message, Following) and self._is_candidate(message):
            self._heard[message.pipeline] = message

    def _is_candidate(self, message: Following) -> bool:
        """Return True if the sender is the one that is wanted; if any is, not a gear of the
        pipeline that leads: a hand-over to it would leave the lead where it is.
        """
        if self._to:
            return message.name == self._to
        return owner_of(message.pipeline) != self._owner

    def best(self) -> Following | None:
        """Return the standby that is ready and has executed most; None if none is ready."""
        return self._furthest([message for message in self._heard.values() if message.ready])

    def _furthest(self, messages: list[Following]) -> Following | None:
        best: Following | None = None
        for message in messages:
            if best is None or _rank(message).before(_rank(best)):
                best = message
        return best

    def refusal(self) -> str:
        """Why nobody takes over, and what to do."""
        standby = f"standby {self._to}" if self._to else "standby"
        message = self._furthest(list(self._heard.values()))
        if message is None and self._to and self._to == self._leads:
            return f"{self._to} leads already: nothing was changed"
        if message is None:
            return f"no {standby} is running: {_START}"
        who = message.name or message.pipeline
        behind = message.behind
        if behind < 0 and self._told is not None:
            behind = max(0, self._told - message.resolved)
        seqs = f"{behind:,} transactions" if behind > 0 else "an unknown number of transactions"
        what = f"the standby {who} is not ready: it has executed up to seq {message.resolved:,}"
        what += f" and lacks {seqs}, some for {message.lag_ms / 1000:.0f} s"
        do = "Nothing was changed, and it catches up by itself: hand over when `streamydb status`"
        return f"{what}. {do} calls it ready"


def _rank(message: Following) -> Rank:
    return Rank(message.ready, message.resolved, message.name, message.pipeline)


def hand_over(
    connection: Mapping[str, str], database: str, to: str, timeout_s: float
) -> HandoverResult:
    """Have the standby ``to`` lead (empty: the one that is ready and has executed most).
    Raises HandoverError: none is ready, or it did not take over. Raises TopicsError: Kafka does not
    answer, or there is no such database.
    """
    log = log_id(connection, database)
    if not existing(connection, [TopicNames(database).control]):
        raise HandoverError(f"no pipeline of {database} has run with this release: {_START}")
    topics = SharedTopics(connection, database)
    try:
        epoch, end = 0, topics.ends()[0]
        topics.begin_at(max(0, end - MESSAGES_MAX))
        while topics.position() < end:
            heard = (m for m in topics.poll(_TURN_S) if m.log == log)
            epoch = max([epoch, *(m.epoch for m in heard if isinstance(m, LeaderClaim | Beat))])
        chosen = _await_standby(topics, log, to, timeout_s)
        names = TopicNames(database)
        ends, unknown = _ends(connection, names.results)
        log_ends, _ = _ends(connection, names.transactions)
        begun_ms = time.time_ns() // 1_000_000
        done = _hand_over(
            topics,
            chosen,
            epoch,
            timeout_s,
            lambda: log_ends is None or _ends(connection, names.transactions)[0] == log_ends,
        )
    finally:
        topics.close()
    if ends is None:
        return msgspec.structs.replace(done, pause_unknown=unknown)
    return _with_pause(done, connection, database, ends, begun_ms)


def _await_standby(topics: SharedTopics, log: str, to: str, timeout_s: float) -> Following:
    """Listen to the standbys, which speak every second; refuse if none is ready."""
    standbys = Standbys(to)
    begun_s = time.monotonic()
    for message in _messages(topics, log, min(timeout_s, _STANDBY_S)):
        standbys.take(message)
        best = standbys.best()
        if best is not None and time.monotonic() - begun_s > _LISTEN_S:
            return best
    best = standbys.best()
    if best is None:
        raise HandoverError(standbys.refusal())
    return best


def _hand_over(
    topics: SharedTopics, to: Following, epoch: int, timeout_s: float, idle: Callable[[], bool]
) -> HandoverResult:
    """Ask for the hand-over; wait until the new leader has resolved something, if there is work."""
    begun_s = time.monotonic()
    wish = Handover(log=to.log, pipeline="", to=to.name, target=to.pipeline)
    topics.say(wish)
    done: HandoverResult | None = None
    heard_s = asked_s = begun_s
    for message in _messages(topics, to.log, timeout_s):
        if done is None and time.monotonic() - asked_s > _ASK_S:
            topics.say(wish)  # it was not ready just then
            asked_s = time.monotonic()
        if done is not None and time.monotonic() - heard_s > _IDLE_S:
            if idle():
                break
            heard_s = time.monotonic()
        if not isinstance(message, Beat) or message.epoch <= epoch:
            continue
        if done is None or message.epoch > done.epoch:
            heard_s = time.monotonic()
            done = HandoverResult(
                message.name or message.pipeline,
                message.pipeline,
                message.epoch,
                message.resolved,
                round(heard_s - begun_s, 3),
            )
        elif 0 <= message.executed < message.resolved:
            heard_s = time.monotonic()  # it still executes what was written before
        elif message.resolved > done.resolved:
            break
    if done is None:
        raise HandoverError(f"no pipeline took over within {timeout_s:g} s; see `streamydb status`")
    return done


def _ends(connection: Mapping[str, str], topic: str) -> tuple[dict[int, int] | None, str | None]:
    """Return the end offsets of a topic, or the reason why they are not known."""
    try:
        with TopicReader(connection, topic) as reader:
            return {number: span.high for number, span in reader.spans().items()}, None
    except ReadingError as error:
        return None, str(error)


def _with_pause(
    done: HandoverResult,
    connection: Mapping[str, str],
    database: str,
    begin: Mapping[int, int],
    begun_ms: int,
) -> HandoverResult:
    """Read the verdicts that were written meanwhile, by either leader, for the pause."""
    verdicts: list[TimedVerdict] = []
    try:
        with TopicReader(connection, TopicNames(database).results) as reader:
            ends = {number: span.high for number, span in reader.spans().items()}
            if sum(ends.values()) - sum(begin.values()) > _VERDICTS_MAX:
                what = f"more than {_VERDICTS_MAX:,} verdicts were written meanwhile"
                return msgspec.structs.replace(done, pause_unknown=what)
            for record in reader.between({n: (begin.get(n, 0), end) for n, end in ends.items()}):
                verdict = written(record.timestamp()[1], record.value())
                verdicts += [] if verdict is None else [verdict]
    except ReadingError as error:
        return msgspec.structs.replace(done, pause_unknown=str(error))
    pause_ms = longest_pause(verdicts, begun_ms)
    return msgspec.structs.replace(done, pause_s=None if pause_ms is None else pause_ms / 1000)


def _messages(topics: SharedTopics, log: str, timeout_s: float) -> Iterator[Message]:
    """Yield the messages from now on; an empty message when there is none."""
    ends_s = time.monotonic() + timeout_s
    while time.monotonic() < ends_s:
        said = topics.poll(_TURN_S)
        yield from (message for message in said if message.log == log)
        if not said:
            yield Handover(log="", pipeline="")
