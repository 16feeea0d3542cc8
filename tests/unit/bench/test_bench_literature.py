"""The benchmarks of the literature through the serial oracle: judges find nothing, or the fault."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from rich.text import Text

from bench.command import deliver
from bench.keeping import keep
from bench.literature import commands, tpcc, tspoon, voter, voter_workflow, ycsb
from bench.literature.driver import hold
from bench.literature.judging import Invariant, Judge, invariant
from bench.literature.report import show
from bench.literature.tpcc_inputs import FULL_MIX, Draws, Inputs
from bench.literature.tpcc_rows import last_name
from bench.main import app
from bench.workload import Workload
from streamydb.errors import ConfigurationError
from streamydb.records import Transaction, decode
from streamydb.verify.oracle.outputs import OutputRecord
from tests.support.literature import LastOf, Mutation, Serial, broken
from tests.support.seeds import thinned

TSPOON = tspoon.TspoonOptions(accounts=300, balance=20, states=2, subgraphs=2, seed=3)
VOTER = voter.VoterOptions(contestants=4, every=60, phones=400, seed=3)
YCSB = ycsb.YcsbOptions(keys=200, operations=6, value_bytes=8, seed=3)
TPCC = tpcc.TpccOptions(warehouses=2, items=100, customers=30, seed=3)


class Study:
    """A benchmark in memory: what was executed, and who judges it."""

    def __init__(self, name: str) -> None:
        self.serial = Serial(*({name} - {"tspoon"}))
        self.workloads: dict[str, Workload] = {}
        getattr(self, name)()

    def tspoon(self) -> None:
        self.serial.run(tspoon.loading(TSPOON, 0))
        self.workloads = dict(TSPOON.cases())
        self._run(150)

    def voter(self) -> None:
        self.serial.run(voter.beginning(VOTER, self.serial.appended))
        self.workloads = {"votes": voter.Voter(VOTER)}
        self._run(400)

    def voterflow(self) -> None:
        self.serial.run(voter_workflow.flow_beginning(VOTER, self.serial.appended))
        self.workloads = {"votes": voter_workflow.FlowVoter(VOTER)}
        self._run(400)

    def ycsb(self) -> None:
        self.serial.run(ycsb.loading(YCSB, self.serial.appended))
        self.workloads = dict(YCSB.cases())
        self._run(60)

    def tpcc(self) -> None:
        population = TPCC.population()
        self.serial.run(population.transactions(self.serial.appended))
        self.workloads = {"mix": Inputs(population, TPCC.seed)}
        self._run(400)

    def _run(self, count: int) -> None:
        for workload in self.workloads.values():
            self.serial.run(workload.payloads(self.serial.appended, count))


def judge_of(name: str) -> Judge:
    judges: dict[str, Callable[[], Judge]] = {
        "tspoon": lambda: tspoon.TspoonJudge(TSPOON),
        "voter": lambda: voter.VoterJudge(VOTER),
        "voterflow": lambda: voter_workflow.FlowJudge(VOTER),
        "ycsb": ycsb.YcsbJudge,
        "tpcc": lambda: tpcc.TpccJudge(TPCC.scale()),
    }
    return judges[name]()


NAMES = ("tspoon", "voter", "voterflow", "ycsb", "tpcc")


@pytest.fixture(scope="module")
def studies() -> dict[str, Study]:
    return {name: Study(name) for name in NAMES}


def last_of(serial: Serial, prefix: str) -> str:
    """The key that was changed last, of those that are still there."""
    there: dict[str, None] = {}
    for output in serial.outputs:
        key = (output.key or b"").decode()
        if output.topic == "changes" and key.startswith(prefix):
            there.pop(key, None)
            if output.value is not None and json.loads(output.value)["after"] is not None:
                there[key] = None
    return list(there)[-1]


def with_result(change: Callable[[dict[str, Any]], dict[str, Any] | None], number: int) -> Mutation:
    """A mutation of the result of one transaction."""

    def mutate(output: OutputRecord, value: Any) -> Any:
        if output.topic != "results" or value["id"] != f"t{number}":
            return value
        return change(value)

    return mutate


@pytest.mark.parametrize("name", NAMES)
def test_a_serial_run_keeps_all_invariants(studies: dict[str, Study], name: str) -> None:
    found = studies[name].serial.judged(judge_of(name))
    assert broken(found) == set()
    assert hold(found)
    assert all(each.checked for each in found), [each.name for each in found if not each.checked]


@pytest.mark.parametrize("name", NAMES)
def test_transactions_are_valid_and_follow_from_the_seed(
    studies: dict[str, Study], name: str
) -> None:
    log = studies[name].serial.log
    assert Study(name).serial.log == log
    records = [decode(payload) for payload in log]
    assert all(isinstance(record, Transaction) and record.id for record in records)


def lose(_: Any) -> None:
    return None


def more(by: int, field: str | None = None) -> Callable[[Any], Any]:
    def change(value: Any) -> Any:
        return value + by if field is None else {**value, field: value[field] + by}

    return change


TABLE: list[tuple[str, str, Callable[[Any], Any], str]] = [
    ("tspoon", "a/0/", more(1), "no money is made or lost"),
    ("tspoon", "b/1/", lose, "no money is made or lost"),
    ("tspoon", "c1/0/", lambda _: -1, "no account is overdrawn"),
    ("ycsb", "user/", more(1, "n"), "records are what the last writes left"),
    ("ycsb", "user/", lose, "records are what the last writes left"),
    ("voter", "show", lambda v: {**v, "votes": {"contestant 99": 1}}, "the winner is that of"),
    ("voter", "show", more(1, "recorded"), "boards, window and removals"),
    ("voter", "trending", lambda v: {**v, "last": v["last"][1:]}, "boards, window and removals"),
    ("voter", "board", lambda v: {**v, "top": []}, "boards, window and removals"),
    ("voterflow", "flow/show", lambda v: {**v, "votes": {"x": 1}}, "the winner is that of"),
    ("voterflow", "$windows/voterflow.last", lambda v: {**v, "active": []}, "boards, window"),
    ("voterflow", "$flows/voterflow", more(1, "done"), "each vote is settled once"),
    ("tpcc", "w/1/ytd", more(1), "condition 1"),
    ("tpcc", "d/1/1/next", more(1), "condition 2"),
    ("tpcc", "no/", more(1000), "condition 2"),
    ("tpcc", "no/", more(1000), "condition 3"),
    ("tpcc", "no/", lose, "condition 11"),
    ("tpcc", "o/", more(1, "lines"), "condition 4"),
    ("tpcc", "ol/", lambda v: {**v, "lines": v["lines"][1:]}, "condition 6"),
    ("tpcc", "h/", more(1, "amount"), "conditions 8, 9"),
    ("tpcc", "c/1/1/2", more(1, "balance"), "condition 10"),
    ("tpcc", "c/1/1/2", more(1, "paid"), "condition 12"),
    ("tpcc", "o/", lambda v: {**v, "carrier": 1 if v["carrier"] is None else None}, "condition 5"),
    ("tpcc", "ol/", lambda v: {**v, "delivered": None if v["delivered"] else 1}, "condition 7"),
    ("tpcc", "ol/", lambda v: {**v, "delivered": 1, "lines": [[1, 1, 1, 7]]}, "condition 10"),
    ("tpcc", "d/1/1/first", more(1), "condition 11"),
    ("tpcc", "x/", lambda v: [0, *v[1:]], "the index has each order"),
    ("tpcc", "s/", lambda v: [v[0], v[1] + 1, *v[2:]], "S_YTD"),
    ("tpcc", "o/", lose, "each committed order is there"),
]


@pytest.mark.parametrize(("name", "prefix", "change", "expected"), thinned(TABLE, 4))
def test_a_wrong_value_breaks_its_invariant(
    studies: dict[str, Study], name: str, prefix: str, change: Callable[[Any], Any], expected: str
) -> None:
    serial = studies[name].serial
    found = serial.judged(judge_of(name), LastOf(serial, last_of(serial, prefix), change))
    assert not hold(found)
    assert any(what.startswith(expected) for what in broken(found)), broken(found)
    assert all(each.problems for each in found if not each.ok)


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_or_invalid_result_is_noticed(studies: dict[str, Study], name: str) -> None:
    serial = studies[name].serial
    last = serial.appended - 1
    assert any(output.key == b"t%d" % last for output in serial.outputs)
    for change in (lose, lambda value: {**value, "status": "rejected", "code": "invalid"}):
        found = serial.judged(judge_of(name), with_result(change, last))
        assert "every transaction has a verdict" in broken(found)


def committed_call(serial: Serial, field: str) -> int:
    """The last transaction that committed and returned something with a field."""
    results = (json.loads(output.value or b"") for output in serial.outputs
               if output.topic == "results")  # fmt: skip
    return int([r for r in results if field in (r.get("returned") or ())][-1]["id"][1:])


def test_a_vote_that_counts_otherwise_is_noticed(studies: dict[str, Study]) -> None:
    serial = studies["voter"].serial
    number = committed_call(serial, "recorded")
    refuse = with_result(lambda value: {**value, "status": "aborted", "reason": "no"}, number)
    assert "each vote counts as in a serial run" in broken(serial.judged(judge_of("voter"), refuse))


def test_votes_that_are_settled_out_of_order_are_noticed(studies: dict[str, Study]) -> None:
    serial = studies["voterflow"].serial
    results = (json.loads(o.value or b"") for o in serial.outputs if o.topic == "results")
    first, second, *_ = (result for result in results if result["id"].startswith("$flow/"))

    def swap(output: OutputRecord, value: Any) -> Any:
        if output.topic == "results" and value["id"] in {first["id"], second["id"]}:
            other = second if value["id"] == first["id"] else first
            return {**value, "id": other["id"]}
        return value

    wanted = "each vote is settled once, in the order in which votes came"
    assert wanted in broken(serial.judged(judge_of("voterflow"), swap))


def test_a_stale_read_is_noticed(studies: dict[str, Study]) -> None:
    serial = studies["ycsb"].serial
    results = [json.loads(output.value or b"") for output in serial.outputs
               if output.topic == "results"]  # fmt: skip
    puts, calls = (
        int([r for r in results if r[field]][-1]["id"][1:]) for field in ("reads", "seq")
    )
    stale = {
        puts: lambda v: {**v, "reads": {k: {**r, "n": r["n"] - 1} for k, r in v["reads"].items()}},
        calls: lambda v: {**v, "returned": [n - 1 for n in v["returned"]] or [7]},
    }
    for number, change in stale.items():
        found = serial.judged(judge_of("ycsb"), with_result(change, number))
        assert broken(found) == {"a read shows the last write before it"}


def test_an_order_that_was_told_otherwise_is_noticed(studies: dict[str, Study]) -> None:
    serial = studies["tpcc"].serial
    number = committed_call(serial, "order")
    wrong = with_result(lambda value: {**value, "returned": {"order": 0, "total": 1}}, number)
    assert broken(serial.judged(judge_of("tpcc"), wrong)) == {"each committed order is there"}


def test_an_audit_that_sees_half_a_transfer_is_noticed(studies: dict[str, Study]) -> None:
    judge = tspoon.TspoonJudge(TSPOON)
    judge.audits = [("query 0", tspoon.AUDITED * TSPOON.balance), ("query 2", 1999)]
    found = studies["tspoon"].serial.judged(judge)
    assert broken(found) == {"every query shows whole transfers"}


def test_the_show_ends_with_one_contestant_and_votes_go_back(studies: dict[str, Study]) -> None:
    judge = voter.VoterJudge(VOTER)
    studies["voter"].serial.judged(judge)
    assert judge.show.winner() is not None
    assert len(judge.show.removed) == 3
    assert set(judge.reasons) == {
        "not in the running", "this phone has voted", "the show is over",
    }  # fmt: skip
    assert max(map(len, judge.show.phones.values())) > 1


def tpcc_calls(studies: dict[str, Study]) -> dict[str, list[dict[str, Any]]]:
    """The arguments of the calls of each procedure, in order."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in FULL_MIX}
    for payload in studies["tpcc"].serial.log:
        call = json.loads(payload).get("call")
        if call is not None:
            found[call["procedure"].removeprefix("tpcc.")].append(call["args"])
    return found


def test_tpcc_has_the_inputs_of_the_specification(studies: dict[str, Study]) -> None:
    calls = tpcc_calls(studies)
    whole = sum(map(len, calls.values()))
    for name, percent in FULL_MIX.items():
        assert abs(100 * len(calls[name]) / whole - percent) < 8
        assert calls[name]
    orders, payments = calls["new_order"], calls["payment"]
    assert {len(args["lines"]) for args in orders} <= set(range(5, 16))
    remote = sum((args["cw"] != args["w"]) for args in payments) / len(payments)
    assert 0.05 < remote < 0.3
    assert 0.45 < sum(args["last"] is not None for args in payments) / len(payments) < 0.75
    assert {args["threshold"] for args in calls["stock_level"]} <= set(range(10, 21))
    assert (last_name(371), last_name(0)) == ("PRICALLYOUGHT", "BARBARBAR")


def test_tpcc_rolls_back_one_order_in_a_hundred() -> None:
    draws = Draws(TPCC.population(), random.Random("rolled back"))
    wrong = sum(draws.lines(1)[-1][0] > TPCC.items for _ in range(4_000))
    assert 20 < wrong < 60


def test_tpcc_terminals_know_what_their_transactions_are_about(studies: dict[str, Study]) -> None:
    judge = tpcc.TpccJudge(TPCC.scale())
    studies["tpcc"].serial.judged(judge)
    assert judge.stale == 0
    assert judge.committed.total() + judge.rolled_back == sum(
        map(len, tpcc_calls(studies).values())
    )


def test_tpcc_with_a_terminal_that_knows_too_little_aborts_and_breaks_nothing() -> None:
    """Two terminals that do not hear of each other: the second one's keys are wrong."""
    study = Study("tpcc")
    stale = Inputs(TPCC.population(), TPCC.seed)
    study.serial.run(stale.payloads(study.serial.appended, 200))
    judge = tpcc.TpccJudge(TPCC.scale())
    assert broken(study.serial.judged(judge)) == set()
    assert judge.stale > 0


def test_ycsb_transactions_stay_in_their_partitions() -> None:
    options = ycsb.YcsbOptions(keys=400, operations=6, partitions=4, multi_share=0.5, seed=1)
    table = ycsb.partitions_of(options.keys, options.partitions)
    home = {int(key): part for part, keys in enumerate(table) for key in keys}
    spread = []
    for payload in ycsb.Records(options, table, 0.9, counted=True).payloads(0, 400):
        call = json.loads(payload)["call"]
        keys = [*call["keys"], *call["reads"]]
        assert len(set(keys)) == 6
        spread.append(len({home[int(key.removeprefix("user/"))] for key in keys}))
    assert set(spread) == {1, 2}
    assert abs(spread.count(2) / len(spread) - 0.5) < 0.1


def test_nonsense_is_refused() -> None:
    table = ycsb.partitions_of(100, 4)
    with pytest.raises(ConfigurationError, match="fewer than 4 partitions"):
        ycsb.Records(ycsb.YcsbOptions(keys=100, operations=60), table, 0.0, counted=False)
    with pytest.raises(ConfigurationError, match="too few"):
        ycsb.partitions_of(3, 64)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", commands.ALL)
def test_options_are_sized_and_what_is_given_stands(name: str, *, quick: bool) -> None:
    _, kind = commands.ALL[name]
    options = commands.sized(kind, quick=quick, given={"seed": 9, "repetitions": None})
    assert (options.seed, options.repetitions) == (9, 1 if quick else 3)
    assert options.replay


COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_is_shown_as_it_is_written(name: str) -> None:
    """Square brackets are markup, which swallows words like `[default: 1]`."""
    found = COMMANDS[name]
    texts = [found.help or "", *(getattr(param, "help", None) or "" for param in found.params)]
    assert [Text.from_markup(text).plain for text in texts] == texts


def answer_with(found: list[Invariant]) -> dict[str, Any]:
    late = {"p50": 1.0, "p99": 2.0, "rate": 200.0}
    facts = {
        "txn_per_s": 5.0, "us_per_transaction": 2.0, "ms_a_batch": 3.0, "runs": [5.0],
        "abort_rate": 0.25,
    }  # fmt: skip
    return {
        "benchmark": "tspoon", "parameters": {"accounts": 7}, "cases": {"one": facts},
        "latency_ms": late, "queries": {**late, "per_s": 9.0}, "aborted": 3, "abort_rate": 0.25,
        "peak_rss_mb": 100.0, "shards": 1, "cores": 4, "invariants_ok": hold(found),
        "mixes": {"80% read-only": {"per_s": 8.0, "reads": late, "updates": {**late, "p50": None}}},
        "winner": "ann", "recorded": 11,
        "invariants": [{"name": i.name, "checked": i.checked, "broken": i.broken,
                        "problems": i.problems, "ok": i.ok} for i in found],
    }  # fmt: skip


def test_the_table_is_made_when_all_answers_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(__file__).resolve().parents[3] / "bench" / "table.py"
    spec = spec_from_file_location("table", place)
    assert spec is not None
    assert spec.loader is not None
    table = module_from_spec(spec)
    spec.loader.exec_module(table)
    monkeypatch.setattr(table, "RESULTS", tmp_path)
    assert table.literature_table() is None
    machine = {"cores": 4, "processor": "one", "load": 0.1}
    for name in table.LITERATURE:
        answer = {**answer_with([invariant("sums", 4, [])]), "benchmark": name, "machine": machine}
        keep(answer, tmp_path / f"literature-{name}.json")
    lines = table.literature_table().splitlines()
    assert "| tspoon | one | 5 | 25.0% | 1 / 2 ms at 200/s | 1 hold |" in lines
    assert "|  | 80% read-only | 8 | 25.0% | read-only 1 / 2 ms at 200/s, updates - |  |" in lines


def test_a_broken_invariant_is_shown_and_ends_with_code_3(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = [invariant("sums", 4, []), invariant("[order]", 9, (f"no. {n}" for n in range(7)))]
    out = io.StringIO()
    show(answer_with(whole), Console(file=out, width=150))
    for text in ("✓ sums (4 checked)", "✗ [order] (9 checked)", "no. 4", "7 in all", "25.00%"):
        assert text in out.getvalue()
    assert "no. 5" not in out.getvalue()
    with pytest.raises(typer.Exit) as ended:
        deliver(lambda _: answer_with(whole), show, None, json=True)
    assert ended.value.exit_code == 3
    assert json.loads(capsys.readouterr().out)["invariants_ok"] is False
    deliver(lambda _: answer_with(whole[:1]), show, None, json=True)
    assert json.loads(capsys.readouterr().out)["invariants_ok"] is True
