"""`streamydb watch`: the change feed, results, dead letters or streams as they come."""

from __future__ import annotations

import enum
import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from streamydb.cli.common import EXIT_USAGE, fail, plain, print_json, say, stdout
from streamydb.cli.options import DatabaseOptions, Json
from streamydb.cli.target import find_target
from streamydb.kafka.strangers import ChangeRecords
from streamydb.records import Change
from streamydb.records.formats import UNREADABLE
from streamydb.records.ranges import ScanRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamydb.cli.target import Target
    from streamydb.facade.feed import ChangeFilter
    from streamydb.kafka.receiving import Message

POLL_S = 0.05


class WatchTarget(enum.StrEnum):
    """A topic to watch."""

    changes = "changes"
    results = "results"
    deadletters = "deadletters"
    streams = "streams"


def watch(
    options: DatabaseOptions,
    feed: Annotated[WatchTarget, typer.Argument(help="What to watch.")] = WatchTarget.changes,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with the oldest record, not the next one.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", "-f", help="Go on with new records.")
    ] = True,
    prefix: Annotated[
        str, typer.Option(help="Only records whose key (or id) begins like this.")
    ] = "",
    start: Annotated[str | None, typer.Option(help="Only keys from this one on.")] = None,
    end: Annotated[str | None, typer.Option(help="Only keys before this one.")] = None,
    where: Annotated[
        str | None, typer.Option(help="A check of the value after: '{\"ge\": 100}'.")
    ] = None,
    where_before: Annotated[str | None, typer.Option(help="A check of the value before.")] = None,
    since: Annotated[
        int | None, typer.Option(help="Begin after this seq, if it is kept.", min=0)
    ] = None,
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Show resolved records (progress marks) as well.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", help="Stop after so many records.", min=1)
    ] = None,
    json: Json = False,
) -> None:
    """Print records as they come; `--json`: one JSON object a line with its place and its value.

    It goes on until Ctrl-C; with --no-follow, to the end that the topic had at the start.
    --start, --end, --where, --where-before and --since are for changes.

    After a restart of the pipeline a record may come twice, with the same seq and index.
    """
    chosen = _chosen(feed, ScanRange(prefix, start, end), (where, where_before), since)
    target = find_target(options)
    count = 0
    try:
        begin = from_start or since is not None
        for message in records(target, feed, from_start=begin, follow=follow):
            if not chosen.takes(message, resolved=resolved):
                continue
            _show(feed, message, json)
            count += 1
            if count == limit:
                return
    except KeyboardInterrupt:
        say()


def records(
    target: Target, feed: WatchTarget, *, from_start: bool, follow: bool
) -> Iterator[Message]:
    """The records of a feed, from the oldest or the next one on, for ever or to the present end."""
    from streamydb.kafka.reader import TopicReader

    target.must_listen()
    with TopicReader(target.connection, f"{target.database}.{feed.value}") as reader:
        spans = reader.spans().items()
        yield from reader.between({n: s if from_start else (s.high, s.high) for n, s in spans})
        while follow:
            yield from reader.batch(POLL_S)


class Chosen:
    """The records that are shown.

    Args:
        wanted: of which keys, and of which values if the records are changes.
        since: of changes, only those after this seq.
        feed: where the records are.
    """

    def __init__(
        self, wanted: ChangeFilter, since: int | None, feed: WatchTarget = WatchTarget.changes
    ) -> None:
        self._wanted, self._since, self._feed = wanted, since, feed
        self._valued = wanted.after is not None or wanted.before is not None
        self._seqs: dict[int | None, int] = {}
        self._changes = ChangeRecords("the changes")

    def takes(self, message: Message, *, resolved: bool) -> bool:
        """Return True if a record is shown; the records of a partition come in their order."""
        from streamydb.facade.ports import ChangeEvent

        key, value = message.key(), message.value()
        seq = self._seq(message) if self._valued or self._since is not None else 0
        if seq is None or (self._since is not None and seq <= self._since):
            return False
        if key is None:  # a resolved record, or the result of a record in which no id was found
            marks = self._feed is WatchTarget.changes
            return (resolved or not marks) and not self._wanted.keys.prefix
        if value is None and self._valued:
            return False
        name = key.decode("utf-8", "surrogateescape")
        return self._wanted.takes(ChangeEvent(seq, 0, name, value or b""))

    def _seq(self, message: Message) -> int | None:
        """The seq of a change, or of the delete before a tombstone; None: it is none of ours."""
        partition, value = message.partition(), message.value()
        if value is not None:
            record = self._changes.read(partition, message.offset(), value)
            if record is None:
                return None
            seq = record.source.seq if isinstance(record, Change) else record.resolved
            self._seqs[partition] = seq
        return self._seqs.get(partition, 0)


def _chosen(
    feed: WatchTarget, keys: ScanRange, checks: tuple[str | None, str | None], since: int | None
) -> Chosen:
    """Return the records that options ask for; ``checks``: of the values after and before."""
    from streamydb.facade.feed import change_filter
    from streamydb.facade.problems import ProblemError

    if feed is not WatchTarget.changes and (
        since is not None or any([keys.start, keys.end, *checks])
    ):
        fail("--start, --end, --where, --where-before and --since are for changes", EXIT_USAGE)
    try:
        return Chosen(change_filter(keys, *checks), since, feed)
    except ProblemError as error:
        fail(error.detail, EXIT_USAGE)


def _show(feed: WatchTarget, message: Message, json: bool) -> None:
    key, value = message.key(), message.value()
    if json:
        print_json(
            {
                "partition": message.partition(),
                "offset": message.offset(),
                "key": None if key is None else key.decode("utf-8", "replace"),
                "value": _raw(value),
            }
        )
        return
    stdout().print(plain(_text(feed, key, value)), markup=False, soft_wrap=True)


def _raw(value: bytes | None) -> Any:
    """A value as it stands in the topic if it is JSON, else as text, a tombstone as null."""
    if value is None:
        return None
    try:
        msgspec.json.decode(value)
    except UNREADABLE:
        return value.decode("utf-8", "backslashreplace")
    return msgspec.Raw(value)


def _text(feed: WatchTarget, key: bytes | None, value: bytes | None) -> str:
    name = "" if key is None else key.decode("utf-8", "backslashreplace")
    if value is None:
        return f"{'':>10}  tombstone  {name}"
    try:
        record = msgspec.json.decode(value)
        if feed is WatchTarget.changes:
            if "resolved" in record:
                return f"{record['resolved']:>10}  resolved"
            word = {"c": "create", "u": "update", "d": "delete"}.get(record["op"], record["op"])
            before, after = _json(record["before"]), _json(record["after"])
            change = {"create": after, "delete": before}.get(word, f"{before} -> {after}")
            return f"{record['source']['seq']:>10}  {word:<9}  {name}  {change}"
        if feed is WatchTarget.streams:
            return f"{record['seq']:>10}.{record['index']:<4} {name}  {_json(record['record'])}"
        if feed is WatchTarget.results:
            clock = time.strftime("%H:%M:%S", time.localtime(record["ts_ms"] / 1000))
            parts = [f"{record['seq']:>10}", f"{record['status']:<9}", clock, name]
            if record["code"]:
                parts.append(str(record["code"]))
            if record["reads"]:
                parts.append(_json(record["reads"]))
            if record["failed"]:
                parts.append(f"failed {_json(record['failed'])}")
            if "duplicate" in record:
                parts.append(f"(repeated as {record['duplicate']['seq']})")
            return "  ".join(parts)
    except (*UNREADABLE, KeyError, TypeError):
        pass
    return f"{name}  {value.decode('utf-8', 'backslashreplace')}"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
