"""`streamydb status`: show which parts run, and how far each is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from streamydb.cli.common import EXIT_NO, print_json, stdout
from streamydb.cli.options import DatabaseOptions, Json
from streamydb.cli.target import Target, find_target
from streamydb.errors import StreamyError
from streamydb.local.folder import PipelineStatus, age_s
from streamydb.local.memory import PartMemory, memory_of
from streamydb.records.control import owner_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.table import Table

    from streamydb.kafka.presence import PresentPipeline


class Copy(msgspec.Struct):
    """The copy for Kafka Connect."""

    seq: int
    """The last change that was copied; 0: none was."""
    process: int | None
    """The process that `up` started here for it; None: it does not run, or runs elsewhere."""


class Overview(msgspec.Struct):
    """The output of `status`."""

    database: str
    bootstrap: str
    folder: str
    running: bool
    """A pipeline runs, here or elsewhere, and the broker answers; with ``--here``: one of this
    home, with a name or without."""
    pipeline: PipelineStatus
    elsewhere: list[PresentPipeline] | None
    """Pipelines that were not started from this home and were heard in Kafka lately; None if that
    is not known."""
    others: dict[str, PipelineStatus]
    """Pipelines with a name (standbys) that were started from this home."""
    age_s: float | None
    """Seconds since the pipeline last wrote its state."""
    broker: str
    """`answers`, or what is wrong."""
    log_records: int | None
    """Records in the transactions topic, markers included; None if the broker does not answer."""
    lag: int | None
    """Records in the log now that the pipeline has not read; None if nobody knows."""
    http: str | None
    """Where the REST facade that `up` started serves."""
    ended: dict[str, str]
    """What serves reads, was started by `up` and has ended by itself: its log, by name."""
    log: str | None
    """The pipeline's log file, if it was started by `up`."""
    connect: Copy | None
    """The copy for Kafka Connect; None if there is none, or that is not known."""
    time: str | None = None
    """A warning, if commit times are ahead of this machine's clock: until when they stand still."""
    memory: list[PartMemory] | None = None
    """What each part takes on this machine; None if it was not asked for."""


def status(
    options: DatabaseOptions,
    here: Annotated[
        bool, typer.Option("--here", help="Ask for the pipelines of this home alone.")
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="Also show what each part takes of the memory here.")
    ] = False,
    json: Json = False,
) -> None:
    """Show the state of a database; exit code 3 if it does not run."""
    target = find_target(options)
    overview = describe(target, here=here)
    if memory:
        overview.memory = memory_of(target.settings.home, target.files.folder)
    if json:
        print_json(overview)
    else:
        show(overview)
    if not overview.running:
        raise typer.Exit(EXIT_NO)


def describe(target: Target, *, here: bool = False) -> Overview:
    """Ask the pipelines' status files and the broker, and pipelines elsewhere unless ``here``."""
    from streamydb.local import processes
    from streamydb.local.folder import PIPELINE

    status = target.files.status()
    broker, records = _broker(target)
    elsewhere = None if here or broker != "answers" else pipelines_elsewhere(target)
    others = {name: target.files.status(name) for name in target.files.others()}
    runs = status.state == "running" or leader_of(elsewhere) is not None or _run(others, here=here)
    record = processes.read(target.files.folder, PIPELINE)
    return Overview(
        database=target.database,
        bootstrap=target.bootstrap,
        folder=str(target.files.folder),
        running=runs and broker == "answers",
        pipeline=status,
        elsewhere=elsewhere,
        others=others,
        age_s=age_s(status.updated_ms),
        broker=broker,
        log_records=records,
        lag=unread(status, records),
        http=target.files.facade_url(),
        ended=ended(target.files.folder),
        log=record.log if record is not None else None,
        connect=None if here or broker != "answers" else _copy(target),
        time=None if here or records is None else _time(target),
    )


def ended(folder: Path) -> dict[str, str]:
    """Return the logs of facade and read model, as far as they were started here, not stopped, and
    do not run.
    """
    from streamydb.local import processes
    from streamydb.local.folder import FACADE, READ_MODEL

    records = {name: processes.read(folder, name) for name in (READ_MODEL, FACADE)}
    return {
        name: record.log for name, record in records.items()
        if record is not None and processes.find(folder, name) is None
    }  # fmt: skip


def _run(others: Mapping[str, PipelineStatus], *, here: bool) -> bool:
    """Return True if a pipeline with a name runs: one that leads, or with ``here`` any. The
    database runs if somebody leads it. A health check asks for the process of its own home.
    """
    running = [status for status in others.values() if status.state == "running"]
    return any(here or status.role == "leading" for status in running)


def pipelines_elsewhere(target: Target) -> list[PresentPipeline] | None:
    """Return the pipelines that were heard in Kafka and are none of this home's. None: that cannot
    be known, because nobody may read what they say, or Kafka does not answer.
    """
    from streamydb.kafka import TopicsError
    from streamydb.kafka.presence import seen
    from streamydb.kafka.reader import ReadingError

    incarnations = target.files.incarnations()
    try:
        messages = seen(target.connection, target.database, incarnations)
        return [one for one in messages if owner_of(one.pipeline) not in incarnations]
    except (ReadingError, TopicsError):
        return None


def _time(target: Target) -> str | None:
    """Say if commit times are ahead of this machine's clock."""
    from streamydb.cli.doctor import commit_warning

    try:
        return commit_warning(target)
    except StreamyError:
        return None


def _copy(target: Target) -> Copy | None:
    """Look at the end of the copy for Kafka Connect."""
    from streamydb.kafka.connect.copier import last_copied
    from streamydb.kafka.connect.core import ConnectError
    from streamydb.kafka.reader import ReadingError
    from streamydb.local import processes
    from streamydb.local.folder import CONNECT

    try:
        seq = last_copied(target.connection, target.database)
    except (ConnectError, ReadingError):
        return None
    runs = processes.find(target.files.folder, CONNECT)
    return None if seq is None else Copy(seq, None if runs is None else runs.pid)


def leader_of(elsewhere: list[PresentPipeline] | None) -> PresentPipeline | None:
    return next((one for one in elsewhere or () if one.role == "leading"), None)


def unread(status: PipelineStatus, records: int | None) -> int | None:
    """Return how many of the log's ``records`` the pipeline has not read; None: nobody knows. What
    the pipeline says of its lag is as old as its last batch, and it may be dead since.
    """
    if records is None or status.read is None:
        return None
    return max(0, records - status.read)


def show(overview: Overview) -> None:
    stdout().print(_table(overview))


def _broker(target: Target) -> tuple[str, int | None]:
    """Say whether the broker answers, and how many records the log has."""
    from streamydb.kafka import TopicNames
    from streamydb.kafka.connection import RefusedError, answer_of, listens, mistake_of
    from streamydb.kafka.reader import ReadingError, TopicMissingError, TopicReader

    silent = "does not answer; start it (`streamydb up`) or name it with --bootstrap"
    if not listens(target.bootstrap):
        return silent, None
    mistake = mistake_of(answer_of(target.connection), target.connection)
    if mistake is not None:
        return f"is a place that {mistake.what}: {mistake.fix}", None
    try:
        with TopicReader(target.connection, TopicNames(target.database).transactions) as reader:
            return "answers", sum(span.high for span in reader.spans().values())
    except TopicMissingError:
        return "answers; it has no such database (`streamydb create`)", None
    except ReadingError as error:
        if isinstance(error.__cause__, RefusedError):
            return str(error), None
        return silent, None


def _table(overview: Overview) -> Table:
    from rich.markup import escape
    from rich.table import Table

    status = overview.pipeline
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in (
        ("database", overview.database),
        ("kafka", f"{overview.bootstrap} {overview.broker}"),
        ("pipeline", _here(overview)),
        ("gear", gear_row(status)),
        *(("elsewhere", one) for one in overview.elsewhere or ()),
        *((f"pipeline {name}", _state(other)) for name, other in overview.others.items()),
        ("alarm", status.alarm),
        ("time", overview.time),
        ("facade", overview.http),
        *(
            (name, f"ended; see {log}, then run `streamydb up`")
            for name, log in overview.ended.items()
        ),
        ("copy for Connect", copy_row(overview.connect)),
        ("log records", overview.log_records),
        ("last seq", status.seq),
        ("resolved seq", status.resolved),
        ("lag, records", overview.lag),
        ("input, records/s", status.input_per_s),
        ("batch, ms", status.batch_ms),
        ("batch", status.batch),
        ("told, s ago", None if overview.age_s is None else f"{overview.age_s:.1f}"),
        ("log file", overview.log),
        ("folder", overview.folder),
        *memory_rows(overview.memory or []),
    ):
        if value is not None:
            table.add_row(name, escape(str(value)))
    return table


def memory_rows(parts: Sequence[PartMemory]) -> Iterator[tuple[str, str]]:
    """Yield what each part takes of the memory, and all of them together."""

    def taken(some: Sequence[PartMemory]) -> str:
        files_mb = sum(part.files_mb for part in some)
        text = f"{sum(part.mb for part in some):,.0f} MB"
        return text + (f", {files_mb:,.0f} of files" if files_mb >= 1 else "")

    for part in parts:
        several = f", {part.processes} processes" if part.processes > 1 else ""
        yield f"memory, {part.part}", taken([part]) + several
    if parts:
        yield "memory, all", taken(parts)


def gear_row(status: PipelineStatus) -> str | None:
    """Say which gear of a pipeline leads, since when and why, and how far the other one is."""
    gear = status.gear
    if gear is None or status.state != "running":
        return None
    if gear.obstacle is not None:
        return f"one, {gear.gear}; there is no real-time gear: {gear.obstacle}"
    leads = "leads" if status.role in {"leading", None} else "follows"
    text = f"{gear.gear} {leads} for {age_s(gear.since_ms) or 0:.0f} s: {gear.why}"
    if gear.behind is None:
        return text
    records = f"{gear.behind_records or 0:,} records"
    return f"{text}; the other one is {gear.behind:,} seqs and {records} behind"


def copy_row(copy: Copy | None) -> str | None:
    """Say how far the copy is, and who writes it."""
    if copy is None:
        return None
    runs = "" if copy.process is None else f", process {copy.process}"
    progress = (
        f"the last copied change has seq {copy.seq:,}" if copy.seq else "nothing was copied yet"
    )
    return progress + runs


def _here(overview: Overview) -> str:
    """The state of this home's pipeline; it says if another one executes the database."""
    status = overview.pipeline
    if status.state == "stopped" and leader_of(overview.elsewhere) is not None:
        return "none here; the database is executed elsewhere"
    return _state(status)


def _state(status: PipelineStatus) -> str:
    """The pipeline's state, with its process, its part among others, and its error."""
    text = f"{status.state}, process {status.pid}" if status.runs and status.pid else status.state
    if status.state == "running" and status.role is not None:
        text += f", {status.role} (epoch {status.epoch})"
    if status.state == "running" and status.role == "following":
        seqs = "an unknown number of" if status.behind is None else f"{status.behind:,}"
        behind = f"{seqs} seqs and {(status.lag_ms or 0) / 1000:.0f} s behind"
        text += (
            f", {'ready' if status.ready else 'not ready'}, {behind}, resolved {status.resolved}"
        )
    if status.waiting is not None:
        text += f", waiting for Kafka: {status.waiting}"
    return f"{text}: {status.error}" if status.error else text
