"""`streamydb bench ycsb` and `streamydb bench latency`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamydb.bench import workload as w
from streamydb.bench.bank import BankOptions
from streamydb.bench.common import CommonOptions, rate_facts, running
from streamydb.bench.throughput import median_rate
from streamydb.cli.phases import Phases

__all__ = ["LatencyOptions", "YcsbOptions", "latency", "ycsb"]


@dataclass(frozen=True, slots=True, kw_only=True)
class YcsbOptions(CommonOptions):
    """What to measure; see `streamydb bench ycsb --help`."""

    keys: int = 100_000
    operations: int = 4
    read_share: float = 0.5
    theta: float = 0.99
    value_bytes: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyOptions(BankOptions):
    """What to measure; see `streamydb bench latency --help`."""

    warm_up_s: float = 120.0


def ycsb(options: YcsbOptions, phases: Phases) -> dict[str, Any]:
    """Measure transactions of several reads and puts.

    Raises:
        BenchError: something failed, or a transaction has no result.
    """
    workload = w.Ycsb(
        options.keys, options.operations, options.read_share, options.theta, options.seed,
        value_bytes=options.value_bytes,
    )  # fmt: skip
    with running(options, phases) as run:
        run.load_values(options.keys, options.value_bytes)
        run.warm_up(workload)
        first = run.appender.appended
        rates = run.throughput({"ycsb": workload})["ycsb"]
        latency_ms = run.latency(workload, options.latency_rate, 0.0, options.latency_s)
        run.stop()
        proof = run.answered()
        limit = run.copy_limit(first, workload.changes_each)
        return {
            "benchmark": "ycsb",
            **run.facts(limit, median_rate(rates)),
            "latency_ms": latency_ms,
            "aborted": proof.get("aborted", 0),
            "keys": options.keys,
            "operations": options.operations,
            "read_share": options.read_share,
            "theta": options.theta,
            "value_bytes": options.value_bytes,
            "operations_per_s": round(median_rate(rates) * options.operations, 1),
            "throughput": rate_facts(rates),
            "proof": proof,
        }


def latency(options: LatencyOptions, phases: Phases) -> dict[str, Any]:
    """Measure latency at a rate after a warm-up; then one backlog and the copy limit.

    Raises:
        BenchError: as `bank`.
    """
    name = options.distributions[0]
    workload = options.workload(name)
    with running(options, phases) as run:
        run.load_accounts(options.accounts)
        latency_ms = run.latency(
            workload, options.latency_rate, options.warm_up_s, options.latency_s
        )
        idle = run.idle_cpu()
        peak_mb = round(run.engine.memory.peak_mb, 1)
        first = run.appender.appended
        rates = run.throughput({name: workload})[name]
        run.stop()
        proof = {**run.answered(), **run.balances()}
        limit = run.copy_limit(first, workload.changes_each)
        return {
            "benchmark": "latency",
            **run.facts(limit, median_rate(rates)),
            "latency_ms": latency_ms,
            "offered_per_s": options.latency_rate,
            "warm_up_s": options.warm_up_s,
            "seconds": options.latency_s,
            "peak_rss_mb_at_rate": peak_mb,
            "idle_cpu_percent": idle,
            "aborted": proof.get("aborted", 0),
            "accounts": options.accounts,
            "distribution": name,
            "throughput_after": rate_facts(rates),
            "proof": proof,
        }
