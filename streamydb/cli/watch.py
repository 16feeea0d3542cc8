"""`streamydb watch`: the change feed, results, dead letters or streams as they come."""

from __future__ import annotations

import enum
import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from streamydb.cli.common import print_json, say, stdout
from streamydb.cli.options import Json, Named
from streamydb.cli.target import find_target
from streamydb.records.formats import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from streamydb.cli.target import Target

POLL_S = 0.05


class WatchTarget(enum.StrEnum):
    """A topic to watch."""

    changes = "changes"
    results = "results"
    deadletters = "deadletters"
    streams = "streams"


def watch(
    named: Named,
    feed: Annotated[WatchTarget, typer.Argument(help="What to watch.")] = WatchTarget.changes,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with the oldest record, not the next one.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", "-f", help="Go on with new records.")
    ] = True,
    prefix: Annotated[
        str, typer.Option("--prefix", help="Only records whose key (or id) begins like this.")
    ] = "",
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

    After a restart of the pipeline a record may come twice, with the same seq and index.
    """
    target = find_target(named)
    shown = 0
    try:
        for message in records(target, feed, from_start=from_start, follow=follow):
            if not wanted(message, prefix, resolved=resolved):
                continue
            _show(feed, message, json)
            shown += 1
            if shown == limit:
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
        spans = reader.spans()
        reader.assign({n: span.low if from_start else span.high for n, span in spans.items()})
        for batch in reader.until({number: span.high for number, span in spans.items()}):
            yield from batch
        while follow:
            yield from reader.batch(POLL_S)


def wanted(message: Message, prefix: str, *, resolved: bool) -> bool:
    """Return True if the options ask for this record."""
    key = message.key()
    if key is None:
        return resolved if not prefix else False
    return key.startswith(prefix.encode())


def _show(feed: WatchTarget, message: Message, json: bool) -> None:
    """Print one record."""
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
    stdout().print(_text(feed, key, value), markup=False, soft_wrap=True)


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
    """One line for people."""
    name = "" if key is None else key.decode("utf-8", "backslashreplace")
    if value is None:
        return f"{'':>10}  tombstone  {name}"
    try:
        record = msgspec.json.decode(value)
        if feed is WatchTarget.changes:
            return _change_line(name, record)
        if feed is WatchTarget.streams:
            return f"{record['seq']:>10}.{record['index']:<4} {name}  {_json(record['record'])}"
        if feed is WatchTarget.results:
            return _result_line(name, record)
    except (*UNREADABLE, KeyError, TypeError):
        pass
    return f"{name}  {value.decode('utf-8', 'backslashreplace')}"


def _change_line(name: str, record: dict[str, Any]) -> str:
    """seq, operation, key, value before and after."""
    if "resolved" in record:
        return f"{record['resolved']:>10}  resolved"
    word = {"c": "create", "u": "update", "d": "delete"}.get(record["op"], record["op"])
    before, after = _json(record["before"]), _json(record["after"])
    change = {"create": after, "delete": before}.get(word, f"{before} -> {after}")
    return f"{record['source']['seq']:>10}  {word:<9}  {name}  {change}"


def _result_line(name: str, record: dict[str, Any]) -> str:
    """seq, status, id, code, reads."""
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


def _json(value: object) -> str:
    """JSON on one line."""
    return msgspec.json.encode(value).decode()
