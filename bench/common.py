"""What the benchmarks share: options, the phases of a run, the fields of their answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from bench import workload as w
from bench.appending import Appender, linger_ms
from bench.copies import ONE_COPY, TopicCopies
from bench.costs import Used, pss_mb
from bench.engine import Engine, EngineOptions, cores, fresh_engine
from bench.errors import BenchError
from bench.latency import Floats, open_loop, summary
from bench.limit import CopyLimit, copy_limit
from bench.machine import machine
from bench.proof import read_changes, read_results
from bench.sustain import Interval, Load, long_run
from bench.throughput import Rate, backlog, drain, median_rate
from bench.waiting import settle
from streamydb import __version__
from streamydb.cli.phases import Phases
from streamydb.records.gears import MICRO_BATCH, REAL_TIME

__all__ = ["GEARS", "CommonOptions", "Run", "cost_facts", "rate_facts", "running"]

GEARS: Final = {True: "both", False: MICRO_BATCH}
"""The names of a pipeline's gears: with the real-time gear, and without it."""

_SETTLE_S: Final = 60.0  # what a load has left: compilations, the heap, workers
_LOADED_MAX: Final = 2_000_000
"""Accounts opened at a time: one micro-batch could take ten million, and gigabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """Options of every benchmark; `transactions` is the size of one backlog.

    ``gears``: the pipeline also has the real-time gear.
    """

    shards: int = 1
    transactions: int = 600_000
    repetitions: int = 3
    warm_up_transactions: int = 600_000
    max_offsets: int = 200_000
    plan_limit: int | None = None
    latency_rate: float = 500.0
    latency_s: float = 20.0
    copy_limit: bool = True
    copies: TopicCopies = ONE_COPY
    gears: bool = False
    seed: int = 1
    parent: Path | None = None


class Run:
    """An engine under measurement.

    Attributes:
        engine: the broker and the pipeline.
        appender: numbers the transactions.
        accounts: how many accounts have been loaded.
    """

    def __init__(self, options: CommonOptions, engine: Engine, phases: Phases) -> None:
        """Measure `engine`."""
        self.options, self.engine, self.phases = options, engine, phases
        self.appender = Appender(engine.connection, engine.names.transactions)
        self.accounts = 0

    def load_accounts(self, accounts: int) -> None:
        """Open accounts until there are `accounts`, each with BALANCE."""
        with self.phases.phase(f"Loading {accounts:,} accounts") as phase:
            value = b"%d" % w.BALANCE
            while (new := min(accounts - self.accounts, _LOADED_MAX)) > 0:
                first = self.appender.appended
                self.appender.append_all(w.funding(self.accounts, new, value, first_id=first))
                drain(self.engine, self.appender, phase.note)
                self.accounts += new

    def load_values(self, keys: int, value_bytes: int) -> None:
        """Put a value under each key of the YCSB workload."""
        with self.phases.phase(f"Loading {keys:,} keys") as phase:
            value, first = b'"%s"' % (b"v" * value_bytes), self.appender.appended
            payloads = w.funding(0, keys, value, first_id=first, key_prefix="user/")
            self.appender.append_all(payloads)
            drain(self.engine, self.appender, phase.note)

    def await_real_time(self) -> None:
        """Wait until the real-time gear leads.

        Raises:
            BenchError: the pipeline ended, or it does not take the lead.
        """
        with self.phases.phase("Waiting for the real-time gear"):
            self.engine.await_gear(REAL_TIME)

    def warm_up(self, workload: w.Workload) -> None:
        """Work off backlogs that do not count, so that the JVM has compiled what is hot."""
        with self.phases.phase("Warming up") as phase:
            half = max(1, self.options.warm_up_transactions // 2)
            for _ in range(2):
                rate = backlog(self.engine, self.appender, workload, half, phase.note)
            phase.outcome = f"{rate.per_s:,.0f}/s in the last part"

    def restart(self, workload: w.Workload) -> float:
        """Stop the pipeline and start it again; seconds from the start to the next result."""
        self.stop()
        with self.phases.phase("Starting again") as phase:
            begun = time.monotonic()
            self.engine.start()
            self.appender.append(workload, 1)
            drain(self.engine, self.appender, phase.note)
            return round(time.monotonic() - begun, 1)

    def throughput(self, workloads: Mapping[str, w.Workload]) -> dict[str, list[Rate]]:
        """Measure the workloads in turn, again and again, so that a drift meets all alike."""
        rates: dict[str, list[Rate]] = {name: [] for name in workloads}
        count = self.options.transactions
        for repetition in range(1, self.options.repetitions + 1):
            for name, workload in workloads.items():
                with self.phases.phase(f"Throughput, {name}, repetition {repetition}") as phase:
                    rate = backlog(self.engine, self.appender, workload, count, phase.note)
                    rates[name].append(rate)
                    phase.outcome = f"{rate.per_s:,.0f} transactions/s"
        return rates

    def leader(self) -> dict[str, Any]:
        """Return which gear leads and for how many seconds; nothing of a pipeline that has one."""
        found = self.engine.status().gear
        if found is None or not self.options.gears:
            return {}
        return {"leads": found.gear, "leads_s": round(time.time() - found.since_ms / 1000, 1)}

    def latency(
        self,
        workload: w.Workload,
        rate: float,
        warm_up_s: float,
        seconds: float,
        rise_s: float = 0.0,
    ) -> dict[str, Any] | None:
        """Measure latency at a rate; None if no time is given to it."""
        if seconds <= 0:
            return None
        linger = linger_ms(rate)
        title = f"Latency at {rate:,.0f}/s" + (
            f", the client lingers {linger} ms" if linger else ""
        )
        found = summary(self.latencies(workload, rate, warm_up_s, seconds, title, rise_s))
        return {"rate": rate, "linger_ms": linger, **found}

    def latencies(
        self,
        workload: w.Workload,
        rate: float,
        warm_up_s: float,
        seconds: float,
        title: str,
        rise_s: float = 0.0,
    ) -> Floats:
        """Offer a load at a rate, to which it may rise during the warm-up; the latencies in seconds
        of what was due after it.
        """
        with self.phases.phase(title) as phase:
            found, count = open_loop(
                self.engine, workload, first=self.appender.appended, rate=rate,
                warm_up_s=warm_up_s, seconds=seconds, note=phase.note, rise_s=rise_s,
            )  # fmt: skip
            self.appender.appended += count
            self.appender.follow_ups += count * w.follow_ups_each(workload)
            told = summary(found)
            phase.outcome = f"p50 {told['p50']} ms, p99 {told['p99']} ms"
        return found

    def long_run(
        self,
        workload: w.Workload,
        capacity: float,
        factor: float,
        seconds: float,
        interval_s: float,
        keep: Callable[[list[Interval]], object],
    ) -> dict[str, Any]:
        """Offer `factor` x `capacity` for `seconds`, then wait until the backlog has drained."""
        engine, rate = self.engine, factor * capacity
        load = Load(engine, self.appender, workload, rate, interval_s, keep)
        with self.phases.phase(f"Load of {rate:,.0f}/s for {seconds:,.0f} s") as phase:
            load.run(seconds, phase.note)
            found = long_run(load.intervals, capacity)
            phase.outcome = f"{found['done_per_s']:,.0f}/s done"
        with self.phases.phase("Draining the backlog") as phase:
            begun, left = time.monotonic(), load.intervals[-1].backlog
            drain(engine, self.appender, phase.note)
            drain_s = time.monotonic() - begun
            phase.outcome = f"{left:,} transactions"
        drained = {"transactions": left, "seconds": round(drain_s, 1)}
        return {"offered_per_s": round(rate, 1), "drain": drained, **found}

    def memory_mb(self) -> dict[str, float]:
        """Memory of the pipeline and of the brokers now, in MB; shared pages count once."""
        brokers = [psutil.Process(pid) for pid in self.engine.brokers if psutil.pid_exists(pid)]
        return {
            "pipeline": round(pss_mb(self.engine.processes()), 1),
            "brokers": round(pss_mb(brokers), 1),
        }

    def idle_cpu(self, seconds: float = 10.0) -> float:
        """Return what a pipeline takes that has been idle for a minute, in percent of a core."""
        with self.phases.phase("Idle") as phase:
            time.sleep(_SETTLE_S)
            before = self.engine.cpu_s()
            time.sleep(seconds)
            percent = round(100 * (self.engine.cpu_s() - before) / seconds, 1)
            phase.outcome = f"{percent} % of a core"
        return percent

    def stop(self) -> None:
        """Stop the pipeline once it has written everything; the broker goes on."""
        with self.phases.phase("Stopping the pipeline"):
            settle(self.engine.connection, self.engine.names, self.engine.check)
            self.engine.stop()

    def copy_limit(self, first: int, changes_each: float) -> CopyLimit | None:
        """Measure the copy limit over the backlog from `first`; the pipeline is stopped."""
        if not self.options.copy_limit:
            return None
        with self.phases.phase("Copy limit") as phase:
            last, repetitions = first + self.options.transactions, self.options.repetitions
            limit = copy_limit(self.engine, first, last, changes_each, repetitions)
            phase.outcome = f"{limit.txn_per_s:,.0f} transactions/s"
        return limit

    def answered(self) -> dict[str, Any]:
        """Read all results back: every transaction has one.

        Raises:
            BenchError: one has none.
        """
        engine, expected = self.engine, self.appender.appended
        with self.phases.phase("Reading all results back") as phase:
            verdicts = read_results(
                engine.connection, engine.names.results, expected,
                note=lambda read: phase.note(f"{read:,}"),
            )  # fmt: skip
            phase.outcome = f"{verdicts.answered:,} of {expected:,} answered"
        if verdicts.lost:
            raise BenchError(f"{verdicts.lost:,} of {expected:,} transactions have no result")
        return {"results": expected, "results_again": verdicts.again, **verdicts.statuses}

    def balances(self) -> dict[str, Any]:
        """Read all changes back: no money was made or lost.

        Raises:
            BenchError: it was.
        """
        engine, total = self.engine, self.accounts * w.BALANCE
        with self.phases.phase("Adding up all balances") as phase:
            ledger = read_changes(
                engine.connection, engine.names.changes, note=lambda read: phase.note(f"{read:,}")
            )
            phase.outcome = f"{ledger.accounts:,} accounts hold {ledger.total:,}"
        if problems := ledger.problems(self.accounts, total):
            raise BenchError("the database is wrong: " + "; ".join(problems))
        return {
            "accounts": ledger.accounts, "balances": ledger.total, "expected": total,
            "least_balance_ever": ledger.least, "changes": ledger.changes,
        }  # fmt: skip

    def facts(self, limit: CopyLimit | None, txn_per_s: float) -> dict[str, Any]:
        """The fields that every answer has."""
        options = self.options
        return {
            "txn_per_s": round(txn_per_s, 1),
            "copy_limit_txn_per_s": round(limit.txn_per_s, 1) if limit else None,
            "ratio_to_copy_limit": round(txn_per_s / limit.txn_per_s, 4) if limit else None,
            "copy_limit_runs": [round(rate, 1) for rate in limit.runs] if limit else [],
            "peak_rss_mb": round(self.engine.memory.peak_mb, 1),
            "state_mb": round(self.engine.state_mb(), 1),
            "shards": options.shards,
            "gears": GEARS[options.gears],
            **options.copies.facts(),
            "cores": cores(),
            "transactions": options.transactions,
            "repetitions": options.repetitions,
            "max_offsets": options.max_offsets,
            "plan_limit": options.plan_limit,
            "seed": options.seed,
            "version": __version__,
            "machine": machine(),
        }


@contextmanager
def running(options: CommonOptions, phases: Phases) -> Iterator[Run]:
    """Start an engine for a benchmark; everything has ended after the block."""
    wanted = EngineOptions(
        shards=options.shards, max_offsets=options.max_offsets, plan_limit=options.plan_limit,
        copies=options.copies, extra=("--gear", GEARS[options.gears]),
    )  # fmt: skip
    with fresh_engine(wanted, options.parent, phases) as engine:
        yield Run(options, engine, phases)


def rate_facts(rates: list[Rate]) -> dict[str, Any]:
    """A workload's throughput in figures: each repetition, and its micro-batches."""
    batches = [batch for rate in rates for batch in rate.batches if batch.records]
    return {
        "txn_per_s": round(median_rate(rates), 1),
        "runs": [round(rate.per_s, 1) for rate in rates],
        "us_per_transaction": round(1e6 / median_rate(rates), 2),
        "batches": len(batches),
        "records_a_batch": round(sum(b.records for b in batches) / max(1, len(batches))),
        "ms_a_batch": round(sum(b.ms for b in batches) / max(1, len(batches)), 1),
        **cost_facts(rates),
    }


def cost_facts(rates: list[Rate]) -> dict[str, Any]:
    """Processor time of a transfer by part, in µs, and what share of all the brokers take.

    Nothing if it was not measured.
    """
    count = sum(rate.transactions for rate in rates)
    appending = sum((rate.appending for rate in rates), Used())
    executing = sum((rate.executing for rate in rates), Used())
    append_s = sum(rate.append_s for rate in rates)
    if append_s <= 0 or executing == Used():
        return {}
    whole_s = cores() * sum(rate.seconds for rate in rates)
    return {
        "append_per_s": round(count / append_s, 1),
        "append_cpu_us": appending.us_each(count),
        "cpu_us": executing.us_each(count),
        "brokers_share": round(executing.brokers / whole_s, 4),
    }
