"""`streamydb doctor`: look at everything a database needs, and say the fix for what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import typer

from streamydb.cli.about import installed
from streamydb.cli.common import EXIT_NO, print_json
from streamydb.cli.options import DatabaseOptions, Json
from streamydb.cli.target import Target, find_target
from streamydb.errors import StreamyError

PYTHON_MIN = (3, 11)
STALE_S_MAX = 60.0
_BROKER_S = 5.0
_PACKAGES = ("pyspark", "pandas", "pyarrow", "numpy", "numba", "protobuf", "grpcio", "lmdb")


class Finding(NamedTuple):
    """One thing that was looked at; ``fix`` is what to do when it is not ok."""

    name: str
    level: Literal["ok", "warn", "fail"]
    what: str
    fix: str = ""


def doctor(options: DatabaseOptions, json: Json = False) -> None:
    """Check Java, Python, jars, broker, topics, pipeline and clocks; exit code 3 if one fails."""
    target = find_target(options)
    findings = list(examine(target))
    if json:
        print_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            colour = {"ok": "green", "warn": "yellow", "fail": "red"}[finding.level]
            mark = typer.style(f"{finding.level:<4}", fg=colour, bold=finding.level != "ok")
            typer.echo(f"{mark}  {finding.name}: {finding.what}")
            if finding.fix:
                typer.echo(f"      fix: {finding.fix}")
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(EXIT_NO)


def examine(target: Target) -> Iterator[Finding]:
    """Look at everything, the most basic first; what depends on a failed one is left out."""
    yield _python()
    for package in _PACKAGES:
        version = installed(package)
        if version is None:
            fix = f"pip install {package} (or run `make venv`)"
            yield Finding(package, "fail", "is not installed", fix)
        elif package == "pandas" and not version.startswith("2."):
            yield Finding(package, "fail", version, "pip install 'pandas>=2.2,<3'")
        else:
            yield Finding(package, "ok", version)
    yield _guarded("java", _java)
    yield _guarded("jars", lambda: _jars(target))
    broker = _guarded("broker", lambda: _broker(target))
    yield broker
    if broker.level == "fail":
        return
    topics = list(_topics(target))
    yield from topics
    if all(topic.level != "fail" for topic in topics):
        yield _guarded("clock", lambda: _clock(target))
        yield _guarded("gears", lambda: _gears(target))
    yield _pipeline(target)


def _guarded(name: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except StreamyError as error:
        return Finding(name, "fail", str(error))  # it says what to do
    except Exception as error:  # noqa: BLE001 - a doctor does not die of what it finds
        return Finding(name, "fail", f"{type(error).__name__}: {error}", "see the message")


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON_MIN:
        return Finding("python", "fail", version, "install Python 3.11 or newer")
    return Finding("python", "ok", version)


def _java() -> Finding:
    from streamydb.local.java import find_java

    java = find_java()
    return Finding("java", "ok", f"version {java.version} at {java.path}")


def _jars(target: Target) -> Finding:
    from streamydb.local import jars

    confs = ["pipeline"] if target.settings.bootstrap is not None else ["broker", "pipeline"]
    missing = [conf for conf in confs if jars.cached(conf, target.settings.cache) is None]
    if missing:
        what = f"{', '.join(missing)} not fetched yet"
        return Finding("jars", "warn", what, "`streamydb up` or `make jars` fetches them")
    return Finding("jars", "ok", f"in {target.settings.cache}")


def _broker(target: Target) -> Finding:
    from streamydb.kafka.clients import administrator
    from streamydb.kafka.connection import RefusedError, answer_of, listens, metadata, mistake_of
    from streamydb.kafka.errors import KafkaException

    fix = "`streamydb up` starts the embedded one; --bootstrap names another"
    silent = Finding("broker", "fail", f"no answer at {target.bootstrap}", fix)
    if not listens(target.bootstrap):
        return silent
    mistake = mistake_of(answer_of(target.connection), target.connection)
    if mistake is not None:
        what = f"what listens at {target.bootstrap} {mistake.what}"
        return Finding("broker", "fail", what, mistake.fix)
    admin = administrator(target.connection)
    try:
        metadata(admin, None, _BROKER_S)
        return Finding("broker", "ok", f"answers at {target.bootstrap}")
    except RefusedError as error:
        return Finding("broker", "fail", str(error), "see docs/security.md")
    except KafkaException:
        return silent


def _topics(target: Target) -> Iterator[Finding]:
    from streamydb.kafka import check

    try:
        problems = check(target.connection, target.database, shards=target.settings.shards)
    except StreamyError as error:
        yield Finding("topics", "fail", str(error), "`streamydb create` makes them")
        return
    for problem in problems:
        level: Literal["warn", "fail"] = "fail" if problem.severity == "error" else "warn"
        yield Finding(f"topic {problem.topic}", level, problem.what, problem.fix)
    if not problems:
        yield Finding("topics", "ok", f"all of {target.database} as they must be")


def _clock(target: Target) -> Finding:
    """The broker's clock against ours, by the append time of the youngest transaction."""
    warning = commit_warning(target)
    if warning is not None:
        fix = "synchronise the clocks (NTP); the way back is ClockSkew in docs/operations.md"
        return Finding("clock", "warn", warning, fix)
    return Finding("clock", "ok", "no append time lies in the future")


def commit_warning(target: Target) -> str | None:
    """Return a warning if commit times are ahead of this machine's clock; None if they are not.
    Raises StreamyError: Kafka does not answer.
    """
    from streamydb.kafka import TopicNames
    from streamydb.kafka.admin import cluster, count_partitions
    from streamydb.kafka.clients import administrator
    from streamydb.kafka.clock import log_time

    admin, name = administrator(target.connection), TopicNames(target.database).transactions
    partitions = range(count_partitions(cluster(admin).topics.get(name)))
    return log_time(admin, name, partitions).warning()


def _gears(target: Target) -> Finding:
    """Find out if PySpark and the database allow a real-time gear, wanted or not."""
    from streamydb.kafka import TopicNames, describe
    from streamydb.pipeline.realtime.requirements import version_obstacle
    from streamydb.records.gears import database_obstacle

    settings, names = target.settings, TopicNames(target.database)
    topics = describe(target.connection, target.database)
    why = version_obstacle(installed("pyspark") or "that is not installed") or database_obstacle(
        topics[names.feedback].partitions, topics[names.transactions].partitions, settings.grouping
    )
    if settings.gear == "micro-batch":
        could = "this database could have two" if why is None else f"and could have no other: {why}"
        return Finding("gears", "ok", f"one, as STREAMYDB_GEAR says; {could}")
    if why is None:
        return Finding("gears", "ok", "two: micro-batch and real-time")
    asked = "gear" in settings.model_fields_set
    fix = "leave STREAMYDB_GEAR out, or say micro-batch" if asked else ""
    return Finding("gears", "fail" if asked else "ok", f"one, micro-batch: {why}", fix)


def _pipeline(target: Target) -> Finding:
    from streamydb.cli.status import leader_of, pipelines_elsewhere
    from streamydb.local.folder import age_s

    status = target.files.status()
    if status.state == "running":
        age = age_s(status.updated_ms)
        behind = status.lag or 0
        if behind and age is not None and age > STALE_S_MAX:
            what = f"{behind} records behind and silent for {age:.0f} s"
            return Finding("pipeline", "fail", what, "read its log; `streamydb down`, then `up`")
        return Finding("pipeline", "ok", f"running, seq {status.seq or 0}, {behind} behind")
    leader = leader_of(pipelines_elsewhere(target))
    if leader is not None and status.state != "failed":
        return Finding("pipeline", "ok", f"runs elsewhere: {leader}")
    fix = "`streamydb up` starts it; its log has the reason"
    level: Literal["warn", "fail"] = "fail" if status.state == "failed" else "warn"
    return Finding("pipeline", level, f"{status.state} {status.error or ''}".strip(), fix)
