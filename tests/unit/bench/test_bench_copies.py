"""How the topics of a bench are kept, and what the parts of the system take of the processors."""

from __future__ import annotations

import io
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from bench import bank, engine, others
from bench.common import cost_facts
from bench.copies import ONE_COPY, TopicCopies, copies_of, copies_text, kept_copies
from bench.costs import Used
from bench.engine import cores
from bench.main import app
from bench.report import show
from bench.throughput import Rate
from streamydb.local.broker.cluster import member_properties


@pytest.mark.parametrize(
    ("replication", "sync", "min_insync", "text"),
    [
        (1, False, 1, "1 copy, not synced"),
        (1, True, 1, "1 copy, synced"),
        (3, False, 2, "3 copies (2 must have a record), not synced"),
        (3, True, 2, "3 copies (2 must have a record), synced"),
    ],
)
def test_copies_are_told_and_read_back(
    replication: int, *, sync: bool, min_insync: int, text: str
) -> None:
    copies = copies_of(replication, sync=sync)
    assert copies.facts() == {"copies": replication, "min_insync": min_insync, "sync": sync}
    assert kept_copies(copies.facts()) == copies
    assert copies_text(copies) == text


@pytest.mark.parametrize("replication", [-1, 0, 2, 4])
def test_other_numbers_of_copies_are_refused(replication: int) -> None:
    with pytest.raises(typer.BadParameter, match=f"not {replication}"):
        copies_of(replication, sync=True)


def test_an_older_answer_has_one_copy() -> None:
    assert kept_copies({"benchmark": "bank"}) == ONE_COPY


@pytest.mark.parametrize(("command", "module"), [("bank", bank), ("latency", others)])
def test_the_options_reach_the_measurement(
    command: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[TopicCopies] = []

    def measure(options: Any, _phases: Any) -> dict[str, Any]:
        seen.append(options.copies)
        return {}

    monkeypatch.setattr(module, command, measure)
    done = CliRunner().invoke(
        app, [command, "--sync", "--replication", "3", "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0
    assert seen == [TopicCopies(3, sync=True)]


@pytest.mark.parametrize("copies", [TopicCopies(), TopicCopies(3), TopicCopies(3, sync=True)])
def test_topics_are_made_as_asked(
    copies: TopicCopies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []
    synced: list[bool] = []
    monkeypatch.setattr(engine, "create", lambda *_, **given: made.append(given))
    monkeypatch.setattr(engine, "set_sync", lambda *_, on: synced.append(on))
    monkeypatch.setattr(engine, "Ends", lambda *_: None)
    engine.Engine(engine.EngineOptions(copies=copies), tmp_path, "nowhere:1", (1,))
    assert made == [
        {"shards": 1, "replication": copies.replication, "min_insync": copies.min_insync}
    ]
    assert synced == [True] * copies.sync


def test_costs_are_of_all_repetitions_together() -> None:
    rates = [
        Rate(100, 1.0, (), 0.5, Used(0.0, 1.0, 2.0), Used(4.0, 1.0, 0.0)),
        Rate(100, 3.0, (), 0.5, Used(0.0, 1.0, 2.0), Used(4.0, 3.0, 0.0)),
    ]
    found = cost_facts(rates)
    assert found["append_per_s"] == 200.0
    assert found["append_cpu_us"] == {"pipeline": 0.0, "brokers": 10_000.0, "client": 20_000.0}
    assert found["cpu_us"] == {"pipeline": 40_000.0, "brokers": 20_000.0, "client": 0.0}
    assert found["brokers_share"] == round(4.0 / (4.0 * cores()), 4)
    assert cost_facts([Rate(100, 1.0)]) == {}


def test_members_of_a_cluster_know_each_other() -> None:
    ports = {1: (11, 12), 2: (21, 22), 3: (31, 32)}
    members = {number: member_properties(number, ports) for number in ports}
    assert {each["controller.quorum.voters"] for each in members.values()} == {
        "1@127.0.0.1:12,2@127.0.0.1:22,3@127.0.0.1:32"
    }
    assert [each["node.id"] for each in members.values()] == ["1", "2", "3"]
    assert members[2]["listeners"] == "BROKER://127.0.0.1:21,CONTROLLER://127.0.0.1:22"
    for each in members.values():
        assert each["offsets.topic.replication.factor"] == "3"
        assert each["transaction.state.log.min.isr"] == "2"


def test_a_report_says_machine_copies_and_sync() -> None:
    row = {
        "txn_per_s": 5.0, "us_per_transaction": 2.0, "runs": [5.0], "brokers_share": 0.25,
        "cpu_us": {"pipeline": 8.5, "brokers": 4.25, "client": 0.5},
    }  # fmt: skip
    answer: dict[str, Any] = {
        "benchmark": "bank", "txn_per_s": 5.0, "copy_limit_txn_per_s": None, "aborted": 0,
        "ratio_to_copy_limit": None, "latency_ms": None, "shards": 1, "cores": 2,
        "peak_rss_mb": 12.0, "distributions": {"uniform": row, "zipf": row},
        "proof": {"results": 7, "accounts": 2, "balances": 20},
        **TopicCopies(3, sync=True).facts(),
        "machine": {"processor": "a fast one", "memory_gb": 8, "load": 0.5},
    }  # fmt: skip
    out = io.StringIO()
    show(answer, Console(file=out, width=200))
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert lines[0].split()[:5] == ["transactions/s", "µs", "each", "copies", "sync"]
    for name, line in zip(("uniform", "zipf"), lines[1:], strict=False):
        assert line == f"{name} 5 2 3 yes 5"
    text = "\n".join(lines)
    for told in (
        "pipeline 8.5, brokers 4.25", "processor time 25%", "a fast one, 8 GB, load 0.5",
        "copies 3 copies (2 must have a record), synced",
    ):  # fmt: skip
        assert told in text
