"""The cases of commands that grow: each makes n of what a command works on, and tells what it did.

A case is given the size and a folder of its own, and returns a task that may be run again. The task
returns how many things it has dealt with, which must grow as n: else the case measures nothing.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pytest

from histories import check_history
from streamydb import limits
from streamydb.backup import copy, fork, resize, restore, trim
from streamydb.backup.folder import BackupFolder, StateFolder
from streamydb.backup.kafka import BackupLog
from streamydb.backup.needs import needs
from streamydb.backup.start import begin
from streamydb.cli.sql import Prompt
from streamydb.client.verification import verify
from streamydb.kafka.presence import heard
from streamydb.local.folder import DatabaseFolder
from streamydb.pipeline.standby.handover import Standbys, TimedVerdict, longest_pause
from streamydb.records.control import Beat, Following
from streamydb.testing.clients import MemoryHost
from streamydb.verify.oracle.core import Oracle
from streamydb_layers.tables import Tables, dbapi
from tests.support.commands import run
from tests.support.executed_log import ExecutedLog
from tests.support.grown import DATABASE, LARGE, NAMES, Grown, encoded
from tests.support.histories import Simulation
from tests.support.kept_log import quiet
from tests.support.memory_kafka import CONNECTION

__all__ = ["CASES", "Case", "Task"]

Task: TypeAlias = Callable[[], int]
Case: TypeAlias = Callable[[int, Path, pytest.MonkeyPatch], Task]
"""Size, an empty folder, and what puts memory in the place of Kafka."""

RULE: Final = encoded({"name": "own", "prefix": "k/", "unique": "$"}).decode()
CODE: Final = "def f(db, n):\n    db.put('k', n)\n    return n\n"


def _grown(size: int, home: Path, patch: pytest.MonkeyPatch) -> Grown:
    made = Grown(size, home / "home")
    made.install(patch)
    return made


def _subject(made: Grown) -> copy.Subject:
    return copy.Subject(
        connection=CONNECTION, database=DATABASE, log=made.kafka.ids[NAMES.transactions], shards=1,
        grouping="planner", partitions=1, id_window=1_000_000, digest_interval=100,
        procedures=made.home / "procedures",
    )  # fmt: skip


def _kept(made: Grown) -> BackupFolder:
    """A backup of the database."""
    folder = BackupFolder(made.home / "kept")
    copy.take(folder, _subject(made), made.transactions, 1, quiet)
    return folder


def said(count: Callable[[Any], int], *words: str) -> Case:
    """A command on a grown database, which prints JSON; ``count``: what it tells that it did."""

    def case(size: int, home: Path, patch: pytest.MonkeyPatch) -> Task:
        made = _grown(size, home, patch)
        more = ("--procedures", str(made.home / "procedures"), "--json", *made.options)
        return lambda: count(msgspec.json.decode(run(*words, *more)))

    return case


def _watched(*words: str) -> Case:
    def case(size: int, home: Path, patch: pytest.MonkeyPatch) -> Task:
        made = _grown(size, home, patch)
        more = ("--from-start", "--no-follow")
        return lambda: 4 * len(run("watch", *words, *more, *made.options).splitlines())

    return case


def _lost(size: int, home: Path, patch: pytest.MonkeyPatch) -> Task:
    """A check that finds nothing but differences."""
    made = _grown(size, home, patch)
    for name in (NAMES.results, NAMES.changes, NAMES.deadletters):
        part = made.kafka.topics[name][0]
        part.records = [replace(each, named=b"?") for each in part.records]
    return lambda: int(msgspec.json.decode(
        run("check", "--timeout", "0", "--json", "--procedures", str(made.home / "procedures"),
            *made.options)
    )["results"]["differing"])  # fmt: skip


def _many_locks(size: int, _home: Path, _patch: pytest.MonkeyPatch) -> Task:
    """Transactions of n keys each, which need a lock for each; the replay of check and explain."""
    rules: list[dict[str, Any]] = [
        {"name": "a", "prefix": "a/", "unique": "$"},
        {"name": "b", "prefix": "b/", "keys": {"max": 10_000}},
        {"name": "c", "prefix": "c/", "keys": {"max": 1, "each": "/"}},
    ]  # fmt: skip
    raws = [encoded({"id": rule["name"], "constrain": {"declare": rule}}) for rule in rules]
    keys = [f"k{n:05}" for n in range(size)]
    indexes = [f"$unique/a/1/{n:064x}" for n in range(size)]
    for parts in (
        {"updates": [{"op": "put", "key": f"a/{key}", "value": key} for key in keys],
         "locks": indexes},
        {"updates": [{"op": "put", "key": f"b/{key}", "value": LARGE} for key in keys],
         "locks": [{"range": {"prefix": "b/"}}]},
        {"updates": [{"op": "put", "key": f"c/{key}/x", "value": LARGE} for key in keys],
         "locks": [{"range": {"prefix": f"c/{key}/"}} for key in keys]},
    ):  # fmt: skip
        raws.append(encoded({"id": f"t{len(raws)}", **parts}))

    def task() -> int:
        oracle = Oracle("d")
        for at, raw in enumerate(raws):
            oracle.apply(raw, 0, at, 1_000 + at)
        return len(oracle.state)

    return task


def _ranges(size: int, _home: Path, _patch: pytest.MonkeyPatch) -> Task:
    """Checks and locks of a range over n keys, n times."""
    named = {"range": {"prefix": "k/"}}
    raws = [encoded({"id": "all", "updates": [
        {"op": "put", "key": f"k/{n:05}", "value": n} for n in range(size)
    ]})]  # fmt: skip
    raws += [
        encoded({"id": f"t{n}", "checks": [{**named, "count": size}], "locks": [named]})
        for n in range(size)
    ]

    def task() -> int:
        oracle, held = Oracle("d"), 0
        for at, raw in enumerate(raws):
            outputs = oracle.apply(raw, 0, at, 1_000 + at)
            held += b'"committed"' in (outputs[0].value or b"")
        return held

    return task


def _declared(size: int, home: Path, patch: pytest.MonkeyPatch) -> Task:
    """A constraint that wants locks for all keys of a transaction, told a few at a time."""
    made = _grown(size, home, patch)
    patch.setattr(limits, "FAILED_ENTRIES_MAX", 2)
    more = ("--procedures", str(made.home / "procedures"), "--json", *made.options)
    return lambda: int(msgspec.json.decode(run("whatif", "--constraint", RULE, *more))["to_seq"])


def _restored(size: int, home: Path, patch: pytest.MonkeyPatch) -> Task:
    made = _grown(size, home, patch)
    folder, numbers = _kept(made), itertools.count()

    def task() -> int:
        name, manifest = f"new{next(numbers)}", folder.manifest()
        made.kafka.create(f"{name}.transactions")
        about = restore.prefix(folder, manifest, manifest.seq, quiet)
        lines = {0: restore.lines(folder, manifest, 0, about.positions)}
        return restore.append_log(CONNECTION, name, lines, quiet)

    return task


def _forked(size: int, home: Path, patch: pytest.MonkeyPatch) -> Task:
    made = _grown(size, home, patch)
    return lambda: fork.moment_at(fork.live(_subject(made), None), None, quiet).seq


def _divided(size: int, home: Path, patch: pytest.MonkeyPatch) -> Task:
    made, numbers = _grown(size, home, patch), itertools.count()

    def task() -> int:
        target = StateFolder(home / f"state{next(numbers)}")
        subject, seq = _subject(made), made.transactions
        return resize.divide(subject, home / "checkpoint", None, seq, target, quiet).keys

    return task


def _backed_up(size: int, home: Path, patch: pytest.MonkeyPatch) -> Task:
    made, numbers = _grown(size, home, patch), itertools.count()

    def task() -> int:
        folder = str(home / f"backup{next(numbers)}")
        words = ["--procedures", str(made.home / "procedures"), "--json"]
        return int(msgspec.json.decode(run("backup", folder, *words, *made.options))["records"])

    return task


def _trimmed(size: int, home: Path, patch: pytest.MonkeyPatch) -> Task:
    made = _grown(size, home, patch)
    folder, place = _kept(made), DatabaseFolder(made.home, DATABASE)
    for number in range(size):
        told = Following(
            log=made.kafka.ids[NAMES.transactions], pipeline=f"p{number}", name=f"n{number}",
            epoch=1, resolved=number, lag_ms=0, ready=True,
        )  # fmt: skip
        made.kafka.append(NAMES.control, 0, msgspec.json.encode(told))

    def task() -> int:
        log = BackupLog(CONNECTION, DATABASE)
        cut = trim.cut(folder, folder.manifest(), _subject(made).log, log.spans())
        known = list(needs(CONNECTION, DATABASE, _subject(made).log, place))
        trim.verify(folder, cut, log, quiet)
        return len(trim.refusals(cut, known))

    return task


def _begun(size: int, home: Path, patch: pytest.MonkeyPatch) -> Task:
    made, numbers = _grown(size, home, patch), itertools.count()
    folder = _kept(made)
    config = copy.config_of(folder.manifest())

    def task() -> int:
        checkpoint = home / f"checkpoint{next(numbers)}"
        found = begin(checkpoint, folder.folder, config, _subject(made).log, [0])
        return 0 if found is None else found.seq

    return task


def _procedures(*words: str) -> Case:
    def case(size: int, home: Path, _patch: pytest.MonkeyPatch) -> Task:
        files = []
        for number in range(size // 5):
            files.append(home / f"m{number}.py")
            files[-1].write_text(CODE)
        return lambda: 5 * run("procedures", *words, *map(str, files)).count(" sha256:")

    return case


def _large_module(size: int, home: Path, _patch: pytest.MonkeyPatch) -> Task:
    file = home / "large.py"
    file.write_text("\n".join(CODE.replace("f(", f"f{number}(") for number in range(size)))
    return lambda: run("procedures", "check", str(file)).count("large.f")


def _verified(size: int, _home: Path, _patch: pytest.MonkeyPatch) -> Task:
    def task() -> int:
        with MemoryHost() as host, host.connect() as client:
            client.transaction(updates=[
                {"op": "put", "key": f"k/{number:05}", "value": number} for number in range(size)
            ])  # fmt: skip
            rule = {"name": "own", "prefix": "k/", "unique": "$"}
            client.transaction(constrain={"declare": rule})
            return verify(client).indexed

    return task


def _heard(size: int, _home: Path, _patch: pytest.MonkeyPatch) -> Task:
    said = [
        (1_000_000 + n, Beat(log="l", pipeline=f"p{n}", name=f"n{n}", epoch=size, resolved=n,
                             read=n)) for n in range(size)
    ]  # fmt: skip
    return lambda: len(heard(said, "l", 1_000_000))


def _handed_over(size: int, _home: Path, _patch: pytest.MonkeyPatch) -> Task:
    said = [
        Following(log="l", pipeline=f"p{n}", name=f"n{n}", epoch=1, resolved=n, lag_ms=0,
                  ready=True, said_ms=1) for n in range(size)
    ]  # fmt: skip
    verdicts = [TimedVerdict(1_000 + n, n + 1, 900 + n) for n in range(size)]
    random.Random(size).shuffle(verdicts)

    def task() -> int:
        standbys = Standbys("")
        for message in said:
            standbys.take(message)
        best = standbys.best()
        assert longest_pause(verdicts, 900)
        return 0 if best is None else best.resolved + 1

    return task


def _sql(size: int, _home: Path, patch: pytest.MonkeyPatch) -> Task:
    """Statements one by one, then their rows."""
    patch.setattr("streamydb.kafka.connection.listens", lambda _: True)
    text = ";".join(["create table t (id int primary key, name text)", *(
        f"insert into t values ({n}, '{LARGE}')" for n in range(size // 4)
    ), "select * from t"])  # fmt: skip

    connect = dbapi.connect

    def task() -> int:
        made = connect(Tables.in_memory(), autocommit=True)
        patch.setattr(dbapi, "connect", lambda *_, **__: made)
        return 4 * run("sql", text, "--url", "http://here", "--json").count(LARGE)

    return task


def _typed(size: int, _home: Path, _patch: pytest.MonkeyPatch) -> Task:
    """A statement of many lines at the prompt, each with a semicolon in a text."""
    lines = ["select 1", *(f", 'a;{n}' -- ;" for n in range(size)), ";"]

    def task() -> int:
        typed = iter([*lines])

        def ask(_: str) -> str:
            line = next(typed, None)
            if line is None:
                raise EOFError
            return line

        prompt = Prompt(dbapi.connect(Tables.in_memory()), ask)
        return sum(text.count("\n") for text in prompt.lines())

    return task


def _judged(size: int, _home: Path, _patch: pytest.MonkeyPatch) -> Task:
    history = Simulation(3, 4, lost=0.1).run(size)
    return lambda: sum(check_history(history).operations.values())


def _file(size: int, home: Path, patch: pytest.MonkeyPatch) -> Task:
    """Lines of a file, a client's many ids among them, in the place of whose results is an
    oracle.
    """
    ExecutedLog.install(patch)
    add: dict[str, Any] = {"updates": [{"op": "add", "key": "n", "by": 1}], "reads": ["n"]}
    lines = [encoded({"id": f"t{n - n % 2}", **add}) for n in range(size)]
    lines.insert(0, encoded({"id": "large", "updates": [
        {"op": "put", "key": f"k/{n:05}", "value": LARGE} for n in range(size)
    ]}))  # fmt: skip
    file = home / "lines"
    file.write_bytes(b"\n".join(lines))
    return lambda: len(run("txn", str(file), "--json", "--home", str(home)).splitlines())


def _options(size: int, home: Path, patch: pytest.MonkeyPatch) -> Task:
    """One transaction of many options."""
    ExecutedLog.install(patch)
    words = [word for n in range(size) for word in (
        "--put", f"a{n}={n}", "--read", f"a{n}", "--check", f"b{n} absent", "--assert", f"c{n}=null"
    )]  # fmt: skip
    return lambda: run("txn", *words, "--home", str(home)).count(" = ")


CASES: Final[dict[str, dict[str, Case]]] = {
    "check": {
        "whole": said(lambda told: told["transactions"], "check"),
        "all differ": _lost, "locks": _many_locks, "ranges": _ranges,
    },
    "whatif": {"constraint": _declared},
    "explain": {
        "large": said(lambda told: len(told["writes"]), "explain", "many"),
        "repeated": said(lambda told: 4 * len(told["appends"]), "explain", "again"),
    },
    "watch": {
        "changes": _watched("--json"), "results": _watched("results"),
        "dead letters": _watched("deadletters"), "streams": _watched("streams"),
        "values": _watched("--json", "--where", '{"exists": true}', "--since", "1"),
    },
    "txn": {"file": _file, "options": _options},
    "sql": {"text": _sql, "prompt": _typed},
    "procedures": {"files": _procedures("check"), "large file": _large_module},
    "constraints": {"verify": _verified},
    "backup": {"new": _backed_up},
    "trim": {"checked": _trimmed},
    "restore": {"whole": _restored},
    "fork": {"now": _forked},
    "resize": {"state": _divided},
    "rebuild": {"state": _begun},
    "status": {"pipelines": _heard},
    "handover": {"standbys": _handed_over},
    "histories check": {"history": _judged},
}  # fmt: skip
"""Of each command that has an input which may be large, by what of it is."""
