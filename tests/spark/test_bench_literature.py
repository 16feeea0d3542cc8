"""The benchmarks of the literature at tiny sizes on real Kafka and Spark; never speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_TIMEOUT_S = 280
_SMALL = {
    "tspoon": ("--accounts", "1000", "--transactions", "1000", "--seconds", "2"),
    "voter": ("--contestants", "3", "--every", "200", "--transactions", "200", "--seconds", "1"),
    "ycsb": ("--keys", "1000", "--transactions", "300", "--theta", "0.9", "--seconds", "1"),
    "sss": ("--keys", "100", "--clients", "8", "--seconds", "2"),
    "tpcc": ("--items", "200", "--customers", "20", "--transactions", "400", "--seconds", "1"),
}
_CHECKS = {
    "tspoon": "every query shows whole transfers",
    "voter": "the winner is that of a serial run",
    "ycsb": "a read shows the last write before it",
    "sss": "external consistency (strictly serializable as clients saw it)",
    "tpcc": "condition 2: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
}


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", _SMALL)
def test_a_benchmark_runs_and_keeps_its_invariants(tmp_path: Path, name: str) -> None:
    command = [
        sys.executable, "-m", "streamydb.cli", "bench", name, "--quick", "--json",
        "--folder", str(tmp_path), *_SMALL[name],
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout)
    assert answer["invariants_ok"]
    checked = {each["name"]: each["checked"] for each in answer["invariants"]}
    assert checked[_CHECKS[name]] > 0
    assert checked["equal to the serial replay"] > 0
    assert answer["txn_per_s"] > 0
    assert 0 < answer["latency_ms"]["p50"] <= answer["latency_ms"]["p99"]
    if name == "voter":
        assert set(answer["cases"]) == {"one transaction", "workflow"}
        assert answer["winner"]
        assert answer["workflow_winner"]
    assert list(tmp_path.iterdir()) == []
