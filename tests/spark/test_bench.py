"""The benchmarks and the demo at tiny sizes: the answer's form and the proof, never speed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from bench.floor import FORM_NAMES
from bench.floor_job import FORMS, REAL_TIME_FORMS
from bench.rest import postgresql

_TIMEOUT_S: Final = 280
_SMALL: Final = (
    "--transactions", "3000", "--warm-up-transactions", "2000", "--repetitions", "1",
    "--max-offsets", "2000", "--accounts", "500",
)  # fmt: skip

pytestmark = pytest.mark.timeout(300)


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "streamydb.cli", *arguments, "--folder", str(folder)]


def answer_of(command: list[str]) -> dict[str, Any]:
    """Run a command; its standard output must be one JSON object and nothing else."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stdout
    answer = json.loads(lines[0])
    assert isinstance(answer, dict)
    return answer


def assert_nothing_left(folder: Path) -> None:
    """No file in the folder, and no process that was started with a path in it."""
    assert list(folder.iterdir()) == []
    left = [
        process.info["pid"]
        for process in psutil.process_iter(["pid", "cmdline"])
        if process.pid != psutil.Process().pid
        and any(str(folder) in part for part in process.info["cmdline"] or ())
    ]
    assert left == []


@pytest.mark.long
@pytest.mark.parametrize("limit", ["--no-copy-limit", "--copy-limit"])
def test_bank_answers_with_all_fields_and_proves_the_balances(tmp_path: Path, limit: str) -> None:
    options = (*_SMALL, "--seconds", "2", "--rate", "200", "--shards", "2", limit, "--json")
    answer = answer_of(command(tmp_path, "bench", "bank", *options))
    assert set(answer["distributions"]) == {"uniform", "zipf", "hotpair"}
    for name in ("txn_per_s", "peak_rss_mb", "zipf_to_uniform", "hotpair_to_uniform"):
        assert answer[name] > 0, name
    for name in ("copy_limit_txn_per_s", "ratio_to_copy_limit"):
        assert (answer[name] is not None) == (limit == "--copy-limit"), name
    assert 0 < answer["latency_ms"]["p50"] <= answer["latency_ms"]["p99"]
    assert answer["latency_ms"]["count"] == 400
    assert (answer["shards"], answer["transactions"], answer["aborted"]) == (2, 3000, 0)
    proof = answer["proof"]
    assert proof["results"] == proof["committed"] == 10 + 2000 + 3 * 3000 + 2 * 400
    assert proof["balances"] == proof["expected"]
    assert proof["accounts"] == 500
    assert proof["changes"] == 500 + 2 * (proof["committed"] - 10)
    assert_nothing_left(tmp_path)


@pytest.mark.long
def test_bank_on_three_brokers_that_sync(tmp_path: Path) -> None:
    options = (*_SMALL, "--distribution", "uniform", "--seconds", "0", "--no-copy-limit", "--json")
    kept = ("--replication", "3", "--sync")
    answer = answer_of(command(tmp_path, "bench", "bank", *options, *kept))
    assert (answer["copies"], answer["min_insync"], answer["sync"]) == (3, 2, True)
    row = answer["distributions"]["uniform"]
    assert 0 < row["brokers_share"] < 1
    assert all(used > 0 for used in row["cpu_us"].values())
    assert answer["memory_mb"]["brokers"] > 0
    assert answer["proof"]["balances"] == answer["proof"]["expected"]
    assert_nothing_left(tmp_path)


@pytest.mark.long
def test_bank_beside_postgresql_proves_both(tmp_path: Path) -> None:
    few = ("--connections", "1,3", "--beside-seconds", "1", "--no-copy-limit", "--json")
    peer = ("--beside", "postgresql", "--distribution", "uniform,hotpair")
    asked = command(tmp_path, "bench", "bank", *_SMALL, *few, *peer)
    lacking = postgresql.missing()
    if lacking is not None:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0
        assert lacking in done.stderr
        return
    answer = answer_of(asked)
    rows = answer["peer"]["rows"]
    asked_for = {("uniform", "hotpair"), (True, False), (1, 3)}
    fields = ("distribution", "sync", "clients")
    assert {tuple(dict.fromkeys(row[name] for row in rows)) for name in fields} == asked_for
    assert all(row["txn_per_s"] > 0 for row in [*rows, *answer["closed"]])
    for proof in (answer["proof"], answer["peer"]["proof"]):
        assert (proof["accounts"], proof["balances"]) == (500, proof["expected"])
    assert_nothing_left(tmp_path)


@pytest.mark.long
def test_floor_measures_every_form(tmp_path: Path) -> None:
    short = ("--warm-up", "2", "--seconds", "2", "--rate", "100", "--accounts", "500", "--json")
    answer = answer_of(command(tmp_path, "bench", "floor", *short))
    assert [row["form"] for row in answer["rows"]] == list(FORM_NAMES)
    pipelines = {"pipeline", "pipeline-2", "real-time-pipeline"}
    assert set(FORM_NAMES) - FORMS.keys() - REAL_TIME_FORMS.keys() == pipelines
    for row in answer["rows"]:
        assert 0 < row["p50"] <= row["p99"], row["form"]
        assert [run["count"] for run in row["runs"]] == [200], row["form"]
    assert_nothing_left(tmp_path)


@pytest.mark.long
def test_recovery_measures_every_kind(tmp_path: Path) -> None:
    short = ("--turns", "2", "--settle", "1", "--json")
    answer = answer_of(command(tmp_path, "bench", "recovery", *short))
    cold, standby, handed = answer["rows"]
    for run in cold["runs"]:
        assert run["runs_s"] + run["first_batch_s"] == pytest.approx(run["verdict_s"])
    for row, figure in ((cold, "runs_s"), (standby, "verdict_s"), (handed, "pause_s")):
        assert len(row["runs"]) == 2, row["kind"]
        assert 0 < row[figure]["min"] <= row[figure]["median"] <= row[figure]["max"], row["kind"]
    assert_nothing_left(tmp_path)


@pytest.mark.long
def test_scale_adds_what_a_pipeline_takes_around_our_stages(tmp_path: Path) -> None:
    small = ("--transactions", "300", "--batches", "1", "--accounts", "100", "--backlog", "300")
    options = (*small, "--shards", "1,2", "--pipeline", "--json")
    answer = answer_of(command(tmp_path, "bench", "scale", *options))
    found = {row["stage"]: row["total_us"] for row in answer["rows"] if not row["ours"]}
    assert set(found) == {"JVM", "Python around our stages", "broker"}
    for shards in ("1", "2"):
        assert found["JVM"][shards] > 0
        assert found["broker"][shards] > 0
    assert_nothing_left(tmp_path)


@pytest.mark.long
def test_a_sustained_load_reports_intervals_and_drains(tmp_path: Path) -> None:
    options = (*_SMALL, "--distribution", "zipf", "--no-copy-limit", "--json")
    long = ("--sustain", "6", "--load", "1.5", "--interval", "2")
    answer = answer_of(command(tmp_path, "bench", "bank", *options, *long))
    sustained = answer["sustained"]
    assert len(sustained["intervals"]) >= 3
    assert sustained["drain"]["transactions"] == sustained["intervals"][-1]["backlog"]
    assert sustained["first_minute"]["done_per_s"] > 0
    assert answer["proof"]["balances"] == answer["proof"]["expected"]
    assert answer["copy_limit_txn_per_s"] is None
    assert_nothing_left(tmp_path)


@pytest.mark.long
def test_reads_and_writes_through_http_answer_with_all_cases(tmp_path: Path) -> None:
    options = ("--quick", "--keys", "2000", "--seconds", "0.5", "--rate", "20", "--json")
    answer = answer_of(command(tmp_path, "bench", "rest", *options))
    servers = {"streamydb", *answer["peers"]}
    assert {"streamydb", "constant"} <= servers <= {"streamydb", "constant", "postgresql"}
    found = {(row["case"], row["clients"], row["server"]): row for row in answer["cases"]}
    for case in ("live", "get", "strong", "read", "scan"):
        assert found[case, 16, "streamydb"]["answers"] > 0
    for clients in (1, 16, 256):
        row = found["write", clients, "streamydb"]
        assert 0 < row["p50"] <= row["p99"] <= row["max"]
        assert row["rate_to_constant"] > 0
    assert {row["server"] for row in answer["mixed"]} == servers - {"constant"}
    for row in answer["mixed"]:
        assert row["write_share"] == pytest.approx(0.5, abs=0.1)
        assert row["p50_ratio"] > 0
    for row in (answer["past_the_facade"], answer["constant_beside"]):
        assert row["p50_ratio"] > 0
        assert row["writes"]["p50"] > 0
    assert_nothing_left(tmp_path)


@pytest.mark.long
def test_a_facade_is_measured_on_a_pipeline_under_load(tmp_path: Path) -> None:
    sizes = ("--accounts", "2000", "--transactions", "20000", "--repetitions", "1")
    times = ("--seconds", "6", "--quiet", "3", "--rate", "20", "--json")
    answer = answer_of(command(tmp_path, "bench", "serving", *sizes, *times))
    assert answer["snapshots"]["looks"] > 10
    assert 0 <= answer["snapshots"]["age_p50_s"] <= answer["snapshots"]["age_p99_s"]
    assert min(answer["quiet"]["answers"], answer["beside_load"]["answers"]) > 40
    assert answer["p99_ratio"] > 0
    assert answer["sustained"]["done_per_s"] > 0
    assert answer["proof"]["balances"] == answer["proof"]["expected"]
    assert_nothing_left(tmp_path)


@pytest.mark.long
def test_the_demo_proves_that_no_money_was_lost() -> None:
    options = ("--quick", "--rate", "300", "--json")
    answer = answer_of([sys.executable, "-m", "streamydb.cli", "demo", "bank", *options])
    assert answer["proved"], answer["problems"]
    assert answer["money_before"] == answer["money_after"] == answer["accounts"] * 1000
    assert answer["results"] == answer["transactions"]
    # Where the gears shift, both write for a moment: readers drop the second copies.
    told = answer["committed"] + answer["aborted"]
    assert told == answer["results"] + answer["results_again"]
    assert answer["least_balance_ever"] >= 0


@pytest.mark.long
def test_a_run_that_is_ended_leaves_nothing_behind(tmp_path: Path) -> None:
    arguments = command(tmp_path, "bench", "latency", "--json")
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if "Starting the pipeline" in line:
                break
        run.send_signal(signal.SIGTERM)
        assert run.wait(timeout=_TIMEOUT_S) == 128 + signal.SIGTERM
    assert_nothing_left(tmp_path)
