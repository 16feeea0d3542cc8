"""`streamydb bench latency`: a load at a fixed rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.bank import BankOptions
from bench.common import rate_facts, running
from bench.throughput import median_rate
from streamydb.cli.phases import Phases

__all__ = ["LatencyOptions", "latency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyOptions(BankOptions):
    """What to measure; see `streamydb bench latency --help`."""

    warm_up_s: float = 120.0
    rise_s: float = 0.0


def latency(options: LatencyOptions, phases: Phases) -> dict[str, Any]:
    """Measure latency at a rate after a warm-up; then one backlog and the copy limit.

    Raises:
        BenchError: as `bank`.
    """
    name = options.distributions[0]
    workload = options.workload(name)
    with running(options, phases) as run:
        run.load_accounts(options.accounts)
        if options.gears:
            run.await_real_time()
        latency_ms = run.latency(
            workload, options.latency_rate, options.warm_up_s, options.latency_s, options.rise_s
        )
        leader = run.leader()
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
            "rise_s": options.rise_s,
            "seconds": options.latency_s,
            **leader,
            "peak_rss_mb_at_rate": peak_mb,
            "idle_cpu_percent": idle,
            "aborted": proof.get("aborted", 0),
            "accounts": options.accounts,
            "distribution": name,
            "throughput_after": rate_facts(rates),
            "proof": proof,
        }
