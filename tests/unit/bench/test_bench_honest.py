"""The tables of copies, sync and PostgreSQL, and the command that measures them again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import figures, table
from bench.honest import (
    FIGURES_KEPT,
    GEAR_KEPT,
    PEER_KEPT,
    copies_rows,
    cost_lines,
    costs_of,
    gear_lines,
    latency_kept,
    peer_lines,
    rate_ratio,
)


def answer(rate: float, copies: int = 1, *, sync: bool = False, **more: Any) -> dict[str, Any]:
    used = {"pipeline": 8.0, "brokers": 2.0, "client": 0.5}
    row = {
        "txn_per_s": rate, "brokers_share": 0.125, "cpu_us": used,
        "append_cpu_us": {"pipeline": 0.0, "brokers": 1.0, "client": 3.0},
    }  # fmt: skip
    return {
        "copies": copies, "sync": sync, "distributions": {"uniform": row, "hotpair": row},
        "memory_mb": {"pipeline": 2000.0, "brokers": 500.0}, **more,
    }  # fmt: skip


def late(p50: float) -> dict[str, Any]:
    return {
        "latency_ms": {"p50": p50, "p90": 2 * p50, "p99": 3 * p50}, "offered_per_s": 500.0,
        "sync": True,
    }  # fmt: skip


def peer_answer() -> dict[str, Any]:
    rows = [
        {
            "distribution": name, "sync": sync, "clients": clients, "txn_per_s": 100.0 * clients,
            "p50": 0.25, "p99": 150.0, "again_each": 0.5 if sync else 0.0, "client_percent": 20.0,
            "cpu_us": {"server": 90.0, "client": 20.0}, "memory_mb": 60.0,
            "disk_bytes_each": 300.0,
        }
        for name in ("uniform", "hotpair") for sync in (True, False) for clients in (1, 4)
    ]  # fmt: skip
    closed = [
        {"distribution": name, "clients": clients, "txn_per_s": 10.0 * clients, "p50": 99.0,
         "p99": 250.0}
        for name in ("uniform", "hotpair") for clients in (1, 4)
    ]  # fmt: skip
    return answer(
        120_000.0, sync=True, closed=closed, seconds=4.0, disk_bytes_each=148.0,
        machine={"cores": 2}, peer={"version": "15.1", "rows": rows},
    )  # fmt: skip


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_each_way_to_keep_the_topics_has_a_row() -> None:
    answers = [answer(100_000.0), answer(80_000.0, sync=True), answer(55_000.0, 3)]
    rows = copies_rows(answers, [late(90.0), late(100.0), late(120.0)])
    assert rate_ratio(answers[1], answers[0]) == pytest.approx(0.8)
    assert [cells(row) for row in rows[2:]] == [
        ["1", "no", "100,000/s", "-", "100,000/s", "1.00", "90 ms / 270 ms", "12%"],
        ["1", "yes", "80,000/s", "-", "80,000/s", "0.80", "100 ms / 300 ms", "12%"],
        ["3", "no", "55,000/s", "-", "55,000/s", "0.55", "120 ms / 360 ms", "12%"],
    ]


def test_a_transfer_costs_what_its_append_costs_too() -> None:
    assert costs_of(answer(1.0)) == {"pipeline": 8.0, "brokers": 3.0, "client": 3.5}
    rows = cost_lines([answer(1.0), answer(1.0, 3, sync=True)], peer_answer())[2:]
    assert cells(rows[0]) == ["streamy-db, 1 copy", "11.0", "3.0", "3.5", "2,500", "500", "148"]
    assert cells(rows[1])[0] == "streamy-db, 3 copies, synced"
    assert cells(rows[2]) == [
        "PostgreSQL, synchronous_commit on, 4 connections", "90.0", "-", "20.0", "60", "-", "300"
    ]  # fmt: skip


def test_both_systems_stand_in_one_row_for_each_number_of_clients() -> None:
    told, _, _, _, *rows = peer_lines(peer_answer())
    assert "at most 10 % of the processors" in told
    assert [cells(row)[:2] for row in rows] == [
        [name, clients] for name in ("uniform", "one hot pair")
        for clients in ("a backlog", "1", "4")
    ]  # fmt: skip
    assert cells(rows[2])[2:] == [
        "40/s; 99.0 / 250 ms", "400/s; 0.2 / 150 ms", "400/s; 0.2 / 150 ms", "0.50 / 0.00"
    ]  # fmt: skip


def test_the_latency_of_the_real_time_gear() -> None:
    (line,) = gear_lines(late(12.5))
    assert "(1 copy, synced): p50 12.5, p90 25.0, p99 37.5 ms at 500/s" in line


def test_each_kept_answer_has_a_part_with_its_options() -> None:
    for quick in (False, True):
        found = {part.name: part.arguments for part in figures.parts(quick=quick)}
        kept = {*FIGURES_KEPT, *map(latency_kept, FIGURES_KEPT), PEER_KEPT, GEAR_KEPT}
        assert set(found) == kept
        for name in FIGURES_KEPT:
            for part in (name, latency_kept(name)):
                arguments = found[part]
                copies = arguments[arguments.index("--replication") + 1]
                assert copies == name.split("-")[1]
                assert ("--sync" in arguments) == name.endswith("sync")
        assert "--gear" in found[GEAR_KEPT]
        assert "postgresql" in found[PEER_KEPT]


def test_a_run_that_was_ended_goes_on_and_writes_when_all_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "results"
    written: list[bool] = []
    ran: list[str] = []
    kept.mkdir()
    monkeypatch.setattr(table, "RESULTS", kept)
    monkeypatch.setattr(table, "write_all", lambda: written.append(True))
    fails = {PEER_KEPT}

    def run(command: Sequence[str]) -> int:
        output = Path(command[-1])
        ran.append(output.stem)
        if output.stem in fails:
            return 3
        output.write_text(json.dumps({"name": output.stem}))
        return 0

    assert figures.main(["--parts", str(tmp_path / "parts")], run) == 1
    assert not written
    assert list(kept.iterdir()) == []
    names = [part.name for part in figures.parts()]
    assert ran == names
    fails.clear()
    assert figures.main(["--parts", str(tmp_path / "parts")], run) == 0
    assert ran == [*names, PEER_KEPT]
    assert written == [True]
    assert {path.stem for path in kept.iterdir()} == set(names)


def test_a_part_alone_writes_no_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table, "RESULTS", tmp_path / "nowhere")
    ran: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> int:
        ran.append(command)
        return len(ran) - 1

    where = ["--parts", str(tmp_path)]
    assert figures.main([*where, "--only", GEAR_KEPT], run) == 0
    assert figures.main([*where, "--only", GEAR_KEPT], run) == 1
    assert [Path(command[-1]).stem for command in ran] == [GEAR_KEPT] * 2
    with pytest.raises(SystemExit):
        figures.main([*where, "--only", "nothing"], run)
    assert "--list" in capsys.readouterr().err
    assert figures.main(["--list"], run) == 0
    assert capsys.readouterr().out.split() == [part.name for part in figures.parts()]
    assert len(ran) == 2


def kept(folder: Path) -> None:
    """Keep answers of all parts, as a run does."""
    machine = {
        "cores": 2, "processor": "a fast one", "memory_gb": 8, "load": 0.5, "pyspark": "4.3.0",
    }  # fmt: skip
    for name in FIGURES_KEPT:
        copies, sync = int(name.split("-")[1]), name.endswith("sync")
        found = answer(1000.0 * copies + sync, copies, sync=sync, machine=machine)
        (folder / f"{name}.json").write_text(json.dumps(found))
        (folder / f"{latency_kept(name)}.json").write_text(json.dumps(late(50.0)))
    beside = {**peer_answer(), "machine": machine}
    (folder / f"{PEER_KEPT}.json").write_text(json.dumps(beside))
    (folder / f"{GEAR_KEPT}.json").write_text(json.dumps(late(9.0)))


def test_readme_and_page_get_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("README", "PERFORMANCE", "FIGURES"):
        copy = tmp_path / f"{name}.md"
        shutil.copyfile(getattr(table, name), copy)
        monkeypatch.setattr(table, name, copy)
    results = tmp_path / "results"
    shutil.copytree(table.RESULTS, results)
    monkeypatch.setattr(table, "RESULTS", results)
    for path in results.glob("*copies*"):
        path.unlink()
    table.write_all()
    assert "three brokers" not in table.README.read_text()
    assert table.FIGURES.read_text().count("Not measured yet") == len(table.FIGURES_MARKS)
    kept(results)
    table.write_all()
    readme, page = table.README.read_text(), table.FIGURES.read_text()
    assert "| 3 | yes | 3,001/s |" in readme
    assert "| 3 | yes | 3,001/s |" in page
    for told in ("a fast one", "p50 9.0, p90", "streamy-db, 3 copies, synced", "PostgreSQL 15.1"):
        assert told in page
    assert "Not measured yet" not in page
    assert readme.count("copies on\nthree brokers") == 1
