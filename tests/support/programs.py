"""Programs on a running database: procedures and workflows deployed and called, constraints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import UNSET
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.cli.calls import call
from streamydb.cli.target import Target
from streamydb.kafka.reader import TopicReader
from streamydb.kafka.streams import follow
from streamydb.local.module_folder import publish
from streamydb.procedures.modules import Module
from streamydb.records import Result
from streamydb.testing.database import Database, wait_for
from streamydb.verify.check import CheckReport
from tests.support.workflows import VOTER

__all__ = [
    "assert_whole", "cli", "deploy_bank", "deploy_voter", "executed", "outcome",
    "publish_bank", "put", "records", "sent", "transfer", "versions_are_deployed_and_called",
    "votes",
]  # fmt: skip

BANK = """
from streamydb.procedures import Abort, procedure

FEE = %d

@procedure(keys=lambda args: [args["source"], args["target"]])
def transfer(db, source, target, amount):
    if db.get(source, 0) < amount + FEE:
        raise Abort(f"{source} cannot pay {amount}")
    db.add(source, -amount - FEE)
    db.add(target, amount)
    return {"left": db.get(source), "draw": db.random.randint(1, 1000), "now": db.now}
"""


def cli(database: Database, *arguments: str) -> str:
    """What a command prints."""
    where = ["--home", str(database.settings.home), "--bootstrap", database.broker.bootstrap]
    done = CliRunner().invoke(app, [*arguments, *where], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def sent(database: Database, **fields: Any) -> Result:
    """The result of a transaction, awaited."""
    return call(Target(database.settings, database.place), fields, 120)


def outcome(database: Database, transaction: dict[str, Any]) -> tuple[str, str | None, Any]:
    """Status, code and what was returned."""
    result = sent(database, **transaction)
    value = None if result.returned is UNSET else json.loads(bytes(result.returned))
    return result.status, result.code, value


def put(key: str, value: Any) -> dict[str, Any]:
    """The fields of a transaction."""
    return {"updates": [{"op": "put", "key": key, "value": value}]}


def publish_bank(database: Database, fee: int, folder: Path | None = None) -> Module:
    """Put a version of the bank into the pipeline's folder, or into another one."""
    file = database.folder / "bank.py"
    file.write_text(BANK % fee)
    return publish(file, folder or database.place.procedures)


def deploy_bank(database: Database, fee: int, folder: Path | None = None) -> Module:
    """Publish a version and put it into the log."""
    module = publish_bank(database, fee, folder)
    assert outcome(database, {"deploy": module.record}) == ("committed", None, None)
    return module


def transfer(amount: int) -> dict[str, Any]:
    """The fields of a transaction."""
    args = {"source": "a", "target": "b", "amount": amount}
    return {"call": {"procedure": "bank.transfer", "args": args, "keys": ["a", "b"]}}


def versions_are_deployed_and_called(database: Database) -> dict[str, Any]:
    """The second of two versions is the one that runs, and its aborts are the caller's.

    Returns what the command line said of the first one.
    """
    assert outcome(database, transfer(1)) == ("aborted", "unknown-procedure", None)
    file = database.folder / "bank.py"
    file.write_text(BANK % 1)
    first: dict[str, Any] = json.loads(cli(database, "procedures", "deploy", str(file), "--json"))
    sent(database, **put("a", 100))
    status, _, returned = outcome(database, transfer(10))
    assert (status, returned["left"]) == ("committed", 89)
    deploy_bank(database, 5)
    listed = json.loads(cli(database, "procedures", "list", "--json"))
    current = {each["hash"]: each["current"] for each in listed if each["module"] == "bank"}
    assert (len(current), sum(current.values()), current[first["hash"]]) == (2, 1, False)
    assert outcome(database, transfer(10))[2]["left"] == 74
    assert outcome(database, transfer(1000))[:2] == ("aborted", "procedure-aborted")
    return first


def deploy_voter(database: Database) -> None:
    """Publish the workflow and put it into the log."""
    file = database.folder / "voter.py"
    file.write_text(VOTER)
    module = publish(file, database.place.procedures)
    database.load([{"id": "deploy", "deploy": module.record}])


def votes(first: int, count: int) -> list[dict[str, Any]]:
    """Transactions that enter the workflow."""
    calls = [
        {"procedure": "voter.vote", "args": {"phone": n, "who": f"c{n % 7}"},
         "keys": [f"phone/{n}", "$flows/voter"]}
        for n in range(first, first + count)
    ]  # fmt: skip
    return [{"id": f"vote-{n}", "call": call} for n, call in enumerate(calls, first)]


def records(database: Database, topic: str) -> list[Any]:
    """What a topic holds, copies included."""
    with TopicReader(database.settings.client_config(), f"{database.name}.{topic}") as reader:
        values = [message.value() for message in reader.whole()]
        return [json.loads(value) for value in values if value]


def executed(database: Database) -> int:
    """How many follow-ups have results."""
    ids = {found["id"] for found in records(database, "results")}
    return sum(name.startswith("$flow/") for name in ids)


def assert_whole(database: Database, count: int) -> CheckReport:
    """Every vote has gone through the whole graph, once."""
    wait_for(lambda: executed(database) >= 3 * count, f"{3 * count} follow-ups", 300)
    report = database.assert_serial()
    assert report.follow_ups.matched == report.follow_ups.expected == 3 * count
    settings = database.settings.client_config()
    emitted = list(follow(settings, database.name, "voter.counted", end=True))
    places = [(found.seq, found.index) for found in emitted]
    assert places == sorted(set(places))
    assert [found.record["total"] for found in emitted if found.record["who"] == "c0"] == [
        *range(1, len(range(0, count, 7)) + 1)
    ]
    assert report.streams.matched == report.streams.expected == 2 * count
    values = [change.get("after") for change in records(database, "changes")]
    assert {"done": 3 * count, "made": 3 * count} in values
    boards = [value for value in values if isinstance(value, dict) and "c0" in value]
    assert sum(boards[-1].values()) == count
    return report
