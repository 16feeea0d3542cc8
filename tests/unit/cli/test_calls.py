"""Transactions of the command line: the locks that constraints want are found, as by a client."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import msgspec
import pytest
from typer.testing import CliRunner

from streamydb.cli import app, calls
from streamydb.cli.common import Failure
from streamydb.cli.options import DatabaseOptions
from streamydb.cli.phases import Phases
from streamydb.cli.target import Target, find_target
from streamydb.cli.up import _first_transaction
from streamydb.kafka import producer, results
from streamydb.kafka.producer import Appended, encode
from streamydb.limits import TRANSACTION_BYTES_MAX
from streamydb.local.file_lock import write_whole
from streamydb.local.folder import PipelineStatus
from streamydb.records import Result, decode_result
from streamydb.verify.oracle.core import Oracle


class Kafka:
    """A log that the oracle executes: stands for a producer, and for a reader of results."""

    def __init__(self, ahead: int) -> None:
        self.oracle, self.results, self.ahead = Oracle("db"), list[Result](), ahead

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing ends."""

    def append(self, transaction: Any) -> Appended:
        offset = len(self.results)
        outputs = self.oracle.apply(encode(transaction), 0, offset, 7)
        self.results.append(decode_result(outputs[0].value or b""))
        return Appended(0, offset, 7)

    def append_many(self, transactions: Iterable[Any]) -> Iterator[Appended]:
        """Read ahead of what is yielded, as the real one does."""
        places = []
        for transaction in transactions:
            places.append(self.append(transaction))
            if len(places) > self.ahead:
                yield places.pop(0)
        yield from places

    def note(self, patience_s: float, look: Callable[[], object]) -> Any:
        """Note how long it may take to answer at all, and what is looked at meanwhile."""
        self.patience_s, self.look = patience_s, look
        return self

    def wait_at(self, partition: int, offset: int, _timeout_s: float) -> Result:
        assert partition == 0
        return self.results[offset]


def executed(monkeypatch: pytest.MonkeyPatch, ahead: int) -> Any:
    """A log in the place of Kafka."""
    kafka = Kafka(ahead)
    monkeypatch.setattr(producer, "Producer", lambda *_, **__: kafka)
    monkeypatch.setattr(results, "ResultReader", lambda *_, **named: kafka.note(**named))
    monkeypatch.setattr(calls, "WINDOW", 2)
    monkeypatch.setattr(Target, "must_listen", lambda _: None)
    return kafka


def outcome(transaction: Any) -> Result:
    """The result of a transaction that is the first."""
    raw = msgspec.json.encode(transaction)
    return decode_result(Oracle("db").apply(raw, 0, 0, 7)[0].value or b"")


@pytest.mark.parametrize("ahead", [0, 3, 100])
def test_what_lacks_locks_is_sent_again_with_them(
    monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    kafka = executed(monkeypatch, ahead)
    target: Any = SimpleNamespace(settings=None, must_listen=lambda: None)
    declare = {"name": "mail", "prefix": "user/", "unique": "$.mail"}
    wanted: list[dict[str, Any]] = [
        {"id": "constrain", "constrain": {"declare": declare}},
        *(
            {"id": f"t{n}", "updates": [
                {"op": "put", "key": f"user/{n}", "value": {"mail": mail}}]}
            for n, mail in enumerate(("a", "b", "a", "c"))
        ),
        {"id": "none", "reads": ["user/0"]},
    ]  # fmt: skip
    found = list(calls.call_many(target, wanted, 5))
    said = [(each.id, each.status, each.code) for each in found]
    assert said == [
        ("constrain", "committed", None), ("t0~1", "committed", None),
        ("t1~1", "committed", None), ("t2~1", "aborted", "constraint-violated"),
        ("t3~1", "committed", None), ("none", "committed", None),
    ]  # fmt: skip
    again = [each.id for each in calls.call_many(target, wanted[2:3], 5)]
    assert again == ["t1~1"], "the same again goes the same way"
    assert len(kafka.results) == 6 + 4 + 2


@pytest.mark.parametrize("words", [["constraints", "declare", "{}"], ["procedures", "deploy"]])
def test_a_refusal_without_a_reason_is_told_in_words(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(calls, "call", lambda *_: outcome({"id": "t", "checks": 5}))
    (tmp_path / "shop.py").write_text("def sell(db):\n    pass\n")
    files = [str(tmp_path / "shop.py")] if words[0] == "procedures" else []
    done = CliRunner().invoke(app, [*words, *files, "--home", str(tmp_path)])
    assert done.exit_code == 1
    assert "rejected invalid-transaction: Not a transaction: " in done.stderr


def test_a_verdict_that_does_not_come_can_be_asked_for_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def silent(*_: Any) -> Result:
        raise results.ResultTimeoutError("no result within 0 s.")

    monkeypatch.setattr(executed(monkeypatch, 0), "wait_at", silent)
    words = ["txn", "--put", "a=1", "--id", "mine", "--home", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    told = "transaction mine: no result within 0 s. `streamydb explain` tells"
    assert told in done.stderr


@pytest.mark.parametrize(
    ("state", "told"),
    [("running", ""), ("failed", "the disk is full\n"), ("stopped", "it was told to stop")],
)
def test_the_first_transaction_is_not_awaited_when_the_pipeline_has_ended(
    state: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = find_target(DatabaseOptions(home=tmp_path))
    status = PipelineStatus(state=state, pid=os.getpid(), error="the disk is full")
    write_whole(target.files.status_file, msgspec.json.encode(status))

    def wait_at(partition: int, offset: int, _: float) -> Result:
        kafka.look()
        return Kafka.wait_at(kafka, partition, offset, 0)

    kafka = executed(monkeypatch, 0)
    monkeypatch.setattr(kafka, "wait_at", wait_at)
    ended = f"the pipeline ended before the first result: {told}"
    with pytest.raises(Failure, match=ended) if told else nullcontext():
        assert _first_transaction(target, Phases()).seq == 1


def test_an_interrupted_wait_names_what_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: Any) -> Result:
        raise KeyboardInterrupt

    monkeypatch.setattr(executed(monkeypatch, 0), "wait_at", interrupted)
    words = ["txn", "--put", "a=1", "--id", "mine", "--home", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code not in (0, 3)
    assert "Transaction mine is in the log" in done.stderr


def test_nothing_is_drawn_where_nobody_looks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    executed(monkeypatch, 0)
    file = tmp_path / "lines"
    file.write_text(ADD)
    done = CliRunner().invoke(app, ["txn", str(file), "--home", str(tmp_path)])
    assert done.stderr == "1 committed, 0 aborted, 0 rejected\n"


ADD = '{"updates": [{"op": "add", "key": "n", "by": 1}], "reads": ["n"], "deadline_ms": 99}\n'
LARGE = f'{{"id": "l", "reads": ["{"x" * TRANSACTION_BYTES_MAX}"]}}\n'


@pytest.mark.parametrize("wrong", ["{\n", "5\n", "\xff\n", LARGE])
@pytest.mark.parametrize("before", [0, 5])
@pytest.mark.parametrize("ahead", [0, 100])
def test_what_was_executed_before_a_faulty_line_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: str, before: int, ahead: int
) -> None:
    """Else somebody mends the line and executes the others again."""
    kafka = executed(monkeypatch, ahead)
    file = tmp_path / "lines"
    file.write_text(ADD * before + "\n" + wrong + ADD, "latin-1")
    done = CliRunner().invoke(app, ["txn", str(file), "--json", "--home", str(tmp_path)])
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (2, True), done.exception
    assert len(kafka.results) == before
    told = [msgspec.json.decode(line)["reads"]["n"] for line in done.stdout.splitlines()]
    assert told == list(range(1, before + 1))
    assert f"lines, line {before + 2}: " in done.stderr
    assert ("the 5 before it were executed" in done.stderr) == (before == 5)


@pytest.mark.parametrize(("timeout", "patience_s"), [("0", 5), ("12", 12), ("600", 30)])
def test_kafka_itself_is_waited_for_no_longer_than_a_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, timeout: str, patience_s: float
) -> None:
    kafka = executed(monkeypatch, 0)
    words = ["txn", "--put", "a=1", "--timeout", timeout, "--home", str(tmp_path)]
    assert "seq 1" in CliRunner().invoke(app, words).stdout
    assert kafka.patience_s == patience_s
