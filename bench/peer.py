"""`streamydb bench bank --beside postgresql`: the same transfers in PostgreSQL, in one run."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import numpy as np
import numpy.typing as npt
import psutil
from rich.console import Console
from rich.table import Table

from bench import workload as w
from bench.bank import BankOptions
from bench.closed import closed_loop
from bench.common import Run, rate_facts, running
from bench.costs import pss_mb, tree_cpu_s
from bench.errors import BenchError
from bench.latency import summary
from bench.machine import stolen_s
from bench.peer_load import Transfers, offer
from bench.rest import postgresql
from bench.rest.cases import POSTGRESQL
from bench.throughput import median_rate
from streamydb.cli.phases import Phases

__all__ = ["POSTGRESQL", "PeerOptions", "beside", "peer_row", "show", "wrong_balances"]

SCHEMA: Final = """
CREATE TABLE accounts (
  id bigint PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0)
) WITH (fillfactor = 70);
CREATE FUNCTION transfer(source bigint, target bigint, amount bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  IF source < target THEN
    UPDATE accounts SET balance = balance - amount WHERE id = source;
    UPDATE accounts SET balance = balance + amount WHERE id = target;
  ELSE
    UPDATE accounts SET balance = balance + amount WHERE id = target;
    UPDATE accounts SET balance = balance - amount WHERE id = source;
  END IF;
  RETURN true;
END $$;
"""
"""Rows are locked in the order of their keys, so there are no deadlocks; the pages have room, so an
update needs no new entry of the index. Keys are integers, which are cheaper than texts."""

_USER: Final = "bench"
_SYNCS: Final = ("on", "off")
_WARM_UP_S: Final = 1.0
_DRAWN: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """What to measure; see `streamydb bench bank --help`.

    Attributes:
        bank: the run of streamy-db.
        clients: connections of PostgreSQL, and clients of streamy-db, one number after the other.
        seconds: how long each is measured.
    """

    bank: BankOptions
    clients: tuple[int, ...] = (1, 4, 16, 64)
    seconds: float = 5.0


def beside(options: PeerOptions, phases: Phases) -> dict[str, Any]:
    """Measure streamy-db, then PostgreSQL; prove the balances of both.

    Raises:
        BenchError: PostgreSQL is not installed (nothing was measured); or as `bank`.
    """
    lacking = postgresql.missing()
    if lacking is not None:
        raise BenchError(lacking)
    own = _streamy(options, phases)
    peer = _postgresql(options, phases)
    return {**own, "benchmark": "bank-beside", "beside": POSTGRESQL, "peer": peer}


def _streamy(options: PeerOptions, phases: Phases) -> dict[str, Any]:
    """Measure a backlog of each distribution, then a closed loop of each number of clients."""
    bank = options.bank
    with running(bank, phases) as run:
        run.load_accounts(bank.accounts)
        run.warm_up(bank.workload(bank.distributions[0]))
        before = run.engine.topics_mb(), run.appender.appended
        rates = run.throughput({name: bank.workload(name) for name in bank.distributions})
        grown = run.engine.topics_mb() - before[0]
        memory = run.memory_mb()
        disk_bytes = 1e6 * grown / (run.appender.appended - before[1])
        rows = [
            _closed_row(run, options, distribution, clients)
            for distribution in bank.distributions
            for clients in options.clients
        ]
        run.stop()
        proof = {**run.answered(), **run.balances()}
        medians = {name: median_rate(found) for name, found in rates.items()}
        return {
            **run.facts(None, medians[bank.distributions[0]]),
            "latency_ms": None,
            "aborted": proof.get("aborted", 0),
            "accounts": bank.accounts,
            "memory_mb": memory,
            "disk_bytes_each": round(disk_bytes, 1),
            "distributions": {name: rate_facts(found) for name, found in rates.items()},
            "closed": rows,
            "seconds": options.seconds,
            "proof": proof,
        }


def _closed_row(run: Run, options: PeerOptions, distribution: str, clients: int) -> dict[str, Any]:
    title = f"streamy-db, {distribution}, {clients} clients"
    with run.phases.phase(title) as phase:
        found = closed_loop(
            run.engine, options.bank.workload(distribution), first=run.appender.appended,
            clients=clients, warm_up_s=_WARM_UP_S, seconds=options.seconds, note=phase.note,
        )  # fmt: skip
        run.appender.appended += found.sent
        late = summary(np.frombuffer(found.latencies_s))
        per_s = found.committed / found.seconds
        phase.outcome = f"{per_s:,.0f}/s, p50 {late['p50']} ms"
    return {
        "distribution": distribution, "clients": clients, "txn_per_s": round(per_s, 1),
        "p50": late["p50"], "p99": late["p99"], "cpu_us": found.used.us_each(found.committed),
    }  # fmt: skip


def _postgresql(options: PeerOptions, phases: Phases) -> dict[str, Any]:
    """Measure each distribution, with and without synchronous_commit, at each concurrency."""
    bank = options.bank
    moved = np.zeros(bank.accounts, np.int64)
    rows: list[dict[str, Any]] = []
    with postgresql.cluster(SCHEMA) as (dsn, server):
        with phases.phase("Loading PostgreSQL") as phase:
            asyncio.run(_fund(dsn, bank.accounts))
            phase.outcome = f"{bank.accounts:,} accounts"
        stolen = stolen_s()
        for distribution in bank.distributions:
            for sync, connections in itertools.product(_SYNCS, options.clients):
                with phases.phase(
                    f"PostgreSQL, {distribution}, {connections} connections, "
                    f"synchronous_commit {sync}"
                ) as phase:
                    cell = _Cell(dsn, server)
                    found = cell.offer(options, distribution, sync, connections)
                    moved += found.moved
                    rows.append(peer_row(distribution, sync, connections, found, cell.costs()))
                    phase.outcome = (
                        f"{rows[-1]['txn_per_s']:,.0f}/s, p50 {rows[-1]['p50']} ms, "
                        f"{rows[-1]['again_each']:.2f} tries again each"
                    )
        after = stolen_s()
        with phases.phase("Comparing all balances of PostgreSQL") as phase:
            balances = asyncio.run(_balances(dsn))
            if problems := wrong_balances(balances, moved):
                raise BenchError("PostgreSQL's balances are wrong: " + problems)
            phase.outcome = f"{len(balances):,} accounts hold {int(balances.sum()):,}"
        version = asyncio.run(_scalar(dsn, "SHOW server_version"))
    return {
        "version": str(version), "isolation": "serializable", "rows": rows,
        "stolen_s": round(after[0] - stolen[0], 2),
        "proof": {
            "accounts": len(balances), "balances": int(balances.sum()),
            "expected": bank.accounts * w.BALANCE, "least_balance": int(balances.min()),
        },
    }  # fmt: skip


class _Cell:
    """One load on the server, and what it costs between begin and end."""

    def __init__(self, dsn: str, server: psutil.Process) -> None:
        self._dsn, self._server = dsn, server
        self._marks: list[tuple[float, int]] = []
        self._memory_mb = 0.0

    def offer(
        self, options: PeerOptions, distribution: str, sync: str, connections: int
    ) -> Transfers:
        """Load the server."""
        bank = options.bank
        pairs = _endless(bank.workload(distribution))
        settings = {"default_transaction_isolation": "serializable", "synchronous_commit": sync}
        return offer(
            _folder_of(self._dsn), _USER, settings, pairs, bank.accounts, connections,
            _WARM_UP_S, options.seconds, self._mark,
        )  # fmt: skip

    def costs(self) -> tuple[float, int, float]:
        """Return seconds of processor time, bytes of the write-ahead log, and MB of memory."""
        (cpu_s, wal), (cpu_end_s, wal_end) = self._marks
        return cpu_end_s - cpu_s, wal_end - wal, self._memory_mb

    def _mark(self, begins: bool) -> None:  # noqa: FBT001 - a callback
        wal = asyncio.run(_scalar(self._dsn, "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))
        self._marks.append((tree_cpu_s(self._server), int(wal)))
        if not begins:
            self._memory_mb = pss_mb([self._server, *self._server.children()])


def peer_row(
    distribution: str, sync: str, connections: int, found: Transfers,
    costs: tuple[float, int, float],
) -> dict[str, Any]:  # fmt: skip
    """Return the figures of one load; ``costs``: processor time (s), log (bytes), memory (MB)."""
    cpu_s, wal_bytes, memory_mb = costs
    count = max(1, found.committed)
    late = summary(np.frombuffer(found.latencies_s)) if found.committed else {}
    return {
        "distribution": distribution, "sync": sync == "on", "clients": connections,
        "txn_per_s": round(found.committed / found.seconds, 1),
        "p50": late.get("p50"), "p99": late.get("p99"),
        "again_each": round(found.again / count, 4), "refused": found.refused,
        "cpu_us": {
            "server": round(1e6 * cpu_s / count, 1),
            "client": round(1e6 * found.client_s / count, 1),
        },
        "client_percent": round(100 * found.client_s / found.seconds, 1),
        "memory_mb": round(memory_mb, 1), "disk_bytes_each": round(wal_bytes / count, 1),
    }  # fmt: skip


def wrong_balances(balances: npt.NDArray[np.int64], moved: npt.NDArray[np.int64]) -> str:
    """Say what is wrong with the balances after what all transfers have moved; "" if nothing is."""
    if len(balances) != len(moved):
        return f"{len(balances):,} accounts instead of {len(moved):,}"
    wrong = np.flatnonzero(balances != w.BALANCE + moved)
    if not len(wrong):
        return ""
    first = int(wrong[0])
    return (
        f"{len(wrong):,} of {len(balances):,}; account {first} has {int(balances[first]):,} "
        f"instead of {w.BALANCE + int(moved[first]):,}"
    )


def _endless(bank: w.Bank) -> Iterator[tuple[int, int]]:
    """Yield the accounts of transfers: some thousands are drawn, and repeated."""
    return itertools.cycle(list(zip(*bank.pairs(_DRAWN), strict=True)))


def _folder_of(dsn: str) -> Path:
    """Return where the server's socket lies."""
    return Path(parse_qs(urlsplit(dsn).query)["host"][0])


async def _fund(dsn: str, accounts: int) -> None:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        rows = ((number, w.BALANCE) for number in range(accounts))
        await connection.copy_records_to_table("accounts", records=rows)
        await connection.execute("VACUUM ANALYZE accounts")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def _balances(dsn: str) -> npt.NDArray[np.int64]:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        found = await connection.fetch("SELECT balance FROM accounts ORDER BY id")
    finally:
        await connection.close()
    return np.array([row[0] for row in found], np.int64)


async def _scalar(dsn: str, statement: str) -> Any:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def show(answer: dict[str, Any], console: Console) -> None:
    """Print both systems, a line for each number of clients."""
    from bench.report import show as show_bank

    show_bank(answer, console)
    table = Table(
        "", "clients", "synced", "transactions/s", "p50 ms", "p99 ms", "tries again each",
        "processor µs", "client µs", box=None, padding=(0, 2, 0, 0),
    )  # fmt: skip
    for row in answer["closed"]:
        used = row["cpu_us"]
        table.add_row(
            f"streamy-db, {row['distribution']}", str(row["clients"]),
            "yes" if answer["sync"] else "no", f"{row['txn_per_s']:,.0f}", f"{row['p50']}",
            f"{row['p99']}", "-", f"{used['pipeline'] + used['brokers']:,.0f}",
            f"{used['client']:,.0f}",
        )  # fmt: skip
    for row in answer["peer"]["rows"]:
        table.add_row(
            f"PostgreSQL, {row['distribution']}", str(row["clients"]),
            "yes" if row["sync"] else "no", f"{row['txn_per_s']:,.0f}", f"{row['p50']}",
            f"{row['p99']}", f"{row['again_each']:.2f}", f"{row['cpu_us']['server']:,.0f}",
            f"{row['cpu_us']['client']:,.0f}",
        )  # fmt: skip
    console.print(table)
