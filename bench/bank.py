"""`streamydb bench bank`: transfers between accounts, uniform, Zipf and on one hot pair."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import workload as w
from bench.common import CommonOptions, rate_facts, running
from bench.keeping import keep
from bench.sustain import long_run
from bench.throughput import median_rate
from streamydb.cli.phases import Phases

__all__ = ["BankOptions", "bank", "keys_series", "sustained"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BankOptions(CommonOptions):
    """What to measure; see `streamydb bench bank --help`."""

    accounts: int = 100_000
    distributions: tuple[str, ...] = w.DISTRIBUTIONS
    theta: float = 0.99

    def workload(self, distribution: str, accounts: int | None = None) -> w.Bank:
        """Transfers drawn in this way."""
        return w.Bank(accounts or self.accounts, distribution, self.seed, theta=self.theta)


def bank(options: BankOptions, phases: Phases) -> dict[str, Any]:
    """Measure the throughput of each distribution, latency and the copy limit; prove the balances.

    Raises:
        BenchError: something failed, a transaction has no result, or money was made or lost.
    """
    with running(options, phases) as run:
        run.load_accounts(options.accounts)
        leading = options.workload(options.distributions[0])
        run.warm_up(leading)
        first = run.appender.appended
        rates = run.throughput({name: options.workload(name) for name in options.distributions})
        memory = run.memory_mb()
        warm_up_s = options.latency_s  # the JVM first compiles what small micro-batches need
        latency = run.latency(leading, options.latency_rate, warm_up_s, options.latency_s)
        run.stop()
        proof = {**run.answered(), **run.balances()}
        limit = run.copy_limit(first, leading.changes_each)
        medians = {name: median_rate(found) for name, found in rates.items()}
        return {
            "benchmark": "bank",
            **run.facts(limit, medians[options.distributions[0]]),
            "latency_ms": latency,
            "aborted": proof.get("aborted", 0),
            "zipf_to_uniform": _ratio(medians, "zipf"),
            "hotpair_to_uniform": _ratio(medians, "hotpair"),
            "memory_mb": memory,
            "accounts": options.accounts,
            "distributions": {name: rate_facts(found) for name, found in rates.items()},
            "proof": proof,
        }


def keys_series(
    options: BankOptions, sizes: list[int], phases: Phases,
    sustain: tuple[float, float] | None = None, interval_s: float = 10.0,
) -> dict[str, Any]:  # fmt: skip
    """Measure the cost of a transfer while the database grows to each of `sizes` accounts.

    At each size also how long a pipeline takes to start. ``sustain``: then a load for so many
    seconds at the largest size, and what multiple of the rate there it is.

    Raises:
        BenchError: as `bank`.
    """
    distribution = options.distributions[0]
    series: list[dict[str, Any]] = []
    found = None
    with running(options, phases) as run:
        first = 0
        for size in sorted(sizes):
            run.load_accounts(size)
            workload = options.workload(distribution, size)
            first = first or run.appender.appended
            run.warm_up(workload)
            name = f"{size:,} accounts"
            rates = run.throughput({name: workload})[name]
            state, memory = run.engine.state_mb(), run.engine.memory.now_mb
            facts = {"accounts": size, "state_mb": round(state, 1), "rss_mb": round(memory, 1)}
            start_s = run.restart(workload)
            series.append({**facts, "start_s": start_s, **rate_facts(rates)})
        if sustain is not None:
            run.warm_up(workload)
            capacity = series[-1]["txn_per_s"]
            found = run.long_run(
                workload, capacity, sustain[1], sustain[0], interval_s, lambda _: None
            )
        run.stop()
        proof = {**run.answered(), **run.balances()}
        limit = run.copy_limit(first, 2.0)
        return {
            "benchmark": "bank-keys-series",
            **run.facts(limit, series[-1]["txn_per_s"]),
            "latency_ms": None,
            "aborted": proof.get("aborted", 0),
            "distribution": distribution,
            "series": series,
            "largest_to_smallest": round(series[-1]["txn_per_s"] / series[0]["txn_per_s"], 4),
            **({} if found is None else {"sustained": found}),
            "proof": proof,
        }


def sustained(
    options: BankOptions, seconds: float, load: float, phases: Phases, interval_s: float = 10.0,
    kept: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Offer `load` times the capacity for `seconds`, then let the backlog drain.

    The intervals so far are written to `kept`, if it is given, at the end of each: a run of hours
    that is ended early has measured something.

    Raises:
        BenchError: as `bank`.
    """
    distribution = options.distributions[0]
    workload = options.workload(distribution)
    with running(options, phases) as run:
        run.load_accounts(options.accounts)
        run.warm_up(workload)
        first = run.appender.appended
        capacity = median_rate(run.throughput({"capacity": workload})["capacity"])
        found = run.long_run(
            workload, capacity, load, seconds, interval_s,
            lambda rows: keep({"sustained": long_run(rows, capacity)}, kept) if kept else None,
        )  # fmt: skip
        run.stop()
        proof = {**run.answered(), **run.balances()}
        limit = run.copy_limit(first, workload.changes_each)
        last = found["last_minute"]
        return {
            "benchmark": "bank-sustained",
            **run.facts(limit, capacity),
            "latency_ms": {"p50": last["p50_ms"], "p99": last["p99_ms"]},
            "aborted": proof.get("aborted", 0),
            "distribution": distribution,
            "accounts": options.accounts,
            "load": load,
            "seconds": seconds,
            "sustained": found,
            "proof": proof,
        }


def _ratio(medians: dict[str, float], name: str) -> float | None:
    if name not in medians or "uniform" not in medians:
        return None
    return round(medians[name] / medians["uniform"], 4)
