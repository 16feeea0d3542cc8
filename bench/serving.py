"""`streamydb bench serving`: a facade on a pipeline under load, and strong reads through it.

First strong reads of the quiet database, at a fixed rate. Then transfers at a part of the capacity,
and the same reads beside them; meanwhile the facade is asked again and again how old the snapshot
is that it shows. The capacity is what is done while more is offered: with the facade and the load
running, since they share the machine with the pipeline.
"""

from __future__ import annotations

import http.client
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from bench.bank import BankOptions
from bench.common import Run, running
from bench.rest.load import Figures, Job
from bench.rest.servers import Server, facade, run_load
from bench.throughput import median_rate
from bench.waiting import wait_until
from streamydb.cli.phases import Phases

__all__ = ["Ages", "ServingOptions", "serving"]

_LOOK_S: Final = 0.1
_START_S: Final = 1.2
_LATE_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions(BankOptions):
    """What to measure; see `streamydb bench serving --help`."""

    load: float = 0.8
    seconds: float = 300.0
    quiet_s: float = 60.0
    read_rate: float = 50.0
    read_clients: int = 100
    overload: float = 1.2
    overload_s: float = 40.0
    interval_s: float = 10.0


class Ages:
    """Asks a facade how old its snapshot is, until it is stopped.

    Attributes:
        age_s: as `/health/ready` tells: since when a record waits that reads do not show.
        commit_s: time since the commit timestamp of what reads show.
    """

    def __init__(self, port: int) -> None:
        """Ask the facade at a port."""
        self._port = port
        self._stop = threading.Event()
        self.age_s: list[float] = []
        self.commit_s: list[float] = []

    def run(self) -> None:
        """Look until stopped."""
        while not self._stop.wait(_LOOK_S):
            self.note(_health(self._port), time.time())

    def note(self, health: dict[str, Any], now_s: float) -> None:
        """Note what the facade says now."""
        if health["age_s"] is not None and health["ts_ms"] is not None:
            self.age_s.append(health["age_s"])
            self.commit_s.append(max(0.0, now_s - health["ts_ms"] / 1000))

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def facts(self) -> dict[str, float]:
        """Percentiles in seconds, and how often it was asked."""
        found: dict[str, float] = {"looks": len(self.age_s)}
        for name, values in (("age", self.age_s), ("since_commit", self.commit_s)):
            p50, p99 = np.percentile(values or [0.0], (50, 99))
            found |= {f"{name}_p50_s": round(float(p50), 3), f"{name}_p99_s": round(float(p99), 3)}
        return found


def serving(options: ServingOptions, phases: Phases) -> dict[str, Any]:
    """Measure a facade on a pipeline under load; prove the balances.

    Raises:
        BenchError: something failed, or an answer was wrong, or money was made or lost.
    """
    workload = options.workload(options.distributions[0])
    with running(options, phases) as run:
        run.load_accounts(options.accounts)
        run.warm_up(workload)
        with facade(run.engine, phases) as server:
            backlog = median_rate(run.throughput({"beside a facade": workload})["beside a facade"])
            capacity = run.long_run(
                workload, backlog, options.overload, min(options.overload_s, options.seconds),
                options.interval_s, lambda _: None,
            )["done_per_s"]  # fmt: skip
            with phases.phase("The facade catches up"):
                wait_until(
                    lambda: not _health(server.port)["age_s"], "reads show all", _LATE_S,
                    check=run.engine.check, poll_s=0.5,
                )  # fmt: skip
            with phases.phase("Strong reads of the quiet database") as phase:
                quiet = _reads(options, server, options.quiet_s)
                phase.outcome = f"p50 {quiet.p50} ms, p99 {quiet.p99} ms"
            reads, ages, found = _beside(
                options, server, run,
                lambda: run.long_run(
                    workload, capacity, options.load, options.seconds, options.interval_s,
                    lambda _: None,
                ),
            )  # fmt: skip
        run.stop()
        proof = {**run.answered(), **run.balances()}
        return {
            "benchmark": "serving",
            **run.facts(None, capacity),
            "latency_ms": {"p50": reads.p50, "p99": reads.p99},
            "backlog_txn_per_s": backlog,
            "aborted": proof.get("aborted", 0),
            "load": options.load,
            "read_rate": options.read_rate,
            "quiet": _facts(quiet),
            "beside_load": _facts(reads),
            "p99_ratio": round(reads.p99 / quiet.p99, 3),
            "snapshots": ages.facts(),
            "sustained": found,
            "proof": proof,
        }


def _beside(
    options: ServingOptions, server: Server, run: Run, load: Callable[[], dict[str, Any]]
) -> tuple[Figures, Ages, dict[str, Any]]:
    """Strong reads and looks at the snapshot's age while a load is offered."""
    ages = Ages(server.port)
    readers: list[subprocess.Popen[bytes]] = []
    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(_reads, options, server, options.seconds, readers.append)
        looking = pool.submit(ages.run)
        try:
            found = load()
            reads = reading.result()
        finally:  # an end by a signal waits for neither
            ages.stop()
            for reader in readers:
                reader.kill()
        looking.result()
    run.engine.check()
    return reads, ages, found


def _reads(
    options: ServingOptions,
    server: Server,
    seconds: float,
    began: Callable[[subprocess.Popen[bytes]], None] = lambda _: None,
) -> Figures:
    """Strong reads at the fixed rate; `began` is given the process that reads."""
    job = Job(
        case="balance", port=server.port, clients=options.read_clients,
        begin_s=time.monotonic() + _START_S, warm_up_s=2.0, seconds=seconds,
        rate=options.read_rate, keys=options.accounts, value_bytes=0, seed=options.seed,
    )  # fmt: skip
    (answer,) = run_load([msgspec.json.encode(job)], began)
    return msgspec.json.decode(answer, type=Figures)


def _facts(figures: Figures) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(figures)
    del facts["statuses"]
    return facts


def _health(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/health/ready")
        health: dict[str, Any] = msgspec.json.decode(connection.getresponse().read())
        return health
    finally:
        connection.close()
