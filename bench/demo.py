"""`streamydb demo bank`: a bank on real Kafka and Spark, and the proof that no money got lost.

It starts a broker and a database of its own in a temporary folder, and removes them at the end:
nothing of it comes into a database that runs.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from bench import workload as w
from bench.appending import Appender
from bench.ending import ending_in_order
from bench.engine import Engine, EngineOptions, fresh_engine
from bench.latency import Arrivals
from bench.proof import read_changes, read_results
from bench.waiting import Ends, settle, wait_until
from streamydb.cli.common import EXIT_FAILED
from streamydb.cli.options import Json
from streamydb.cli.phases import Phases, bar
from streamydb.local.folder import PipelineStatus

__all__ = ["app", "bank", "bank_group"]

BALANCE: Final = 1000
"""What each account begins with."""

AMOUNT: Final = 400
"""What a transfer moves: some accounts will not have it, and those transfers abort."""

QUICK_ACCOUNTS: Final = 1000
QUICK_SECONDS: Final = 5.0

_RECENT_S: Final = 3.0
_LATE_S_MAX: Final = 180.0
_TICK_S: Final = 0.005
_SHOW_S: Final = 0.25

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def bank_group() -> None:
    """Show the database at work."""


@app.command()
def bank(
    *,
    accounts: Annotated[int, typer.Option("--accounts", min=2, help="Accounts.")] = 100_000,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long.")] = 20.0,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Transfers a second.")] = 5000.0,
    quick: Annotated[bool, typer.Option("--quick", help="1,000 accounts and 5 seconds.")] = False,
    json: Json = False,
) -> None:
    """Load accounts, move money between them, and prove that none was made or lost.

    Transfers that would overdraw an account abort, as they must. It all happens in a database of
    its own, which is removed at the end. Exit code 1: the proof failed.
    """
    if quick:
        accounts, seconds = QUICK_ACCOUNTS, QUICK_SECONDS
    phases = Phases()
    with ending_in_order(), fresh_engine(EngineOptions(), None, phases) as engine:
        demo = _Demo(engine, phases, accounts, rate, seconds)
        demo.load()
        demo.transfer()
        answer = demo.prove()
    if json:
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        _tell(answer, Console(highlight=False))
    if not answer["proved"]:
        raise typer.Exit(EXIT_FAILED)


class _Demo:
    """One run."""

    def __init__(
        self, engine: Engine, phases: Phases, accounts: int, rate: float, seconds: float
    ) -> None:
        self._engine, self._phases = engine, phases
        self._accounts, self._rate, self._seconds = accounts, rate, seconds
        self._prefix = f"demo-{uuid.uuid4().hex[:8]}-"
        self._keys = f"{self._prefix}account/"
        changes = Ends(engine.connection, engine.names.changes)
        self._starts = engine.results.ends(), changes.ends()
        self._loads = -(-accounts // w.KEYS_A_LOAD)
        self._count = int(rate * seconds)
        self._latencies = np.empty(0)

    def load(self) -> None:
        """Open the accounts."""
        payloads = w.funding(
            0, self._accounts, b"%d" % BALANCE, id_prefix=self._prefix, key_prefix=self._keys
        )
        with self._phases.phase(f"Opening {self._accounts:,} accounts") as phase:
            appender = Appender(self._engine.connection, self._engine.names.transactions)
            with self._arrivals(0, self._loads) as arrivals:
                appender.append_all(payloads)
                self._await(
                    arrivals, lambda: phase.note(f"{self._loads - arrivals.missing:,} loads")
                )
            phase.outcome = f"{BALANCE} each"

    def transfer(self) -> None:
        """Move money at the rate, with a live display."""
        transfers = w.Bank(
            self._accounts, amount=AMOUNT, seed=uuid.uuid4().int >> 96,
            id_prefix=self._prefix, key_prefix=self._keys,
        )  # fmt: skip
        payloads = transfers.payloads(self._loads, self._count)
        appender = Appender(self._engine.connection, self._engine.names.transactions, linger_ms=0)
        with self._arrivals(self._loads, self._count) as arrivals:
            with _display(self._phases.console) as live:
                begun = time.monotonic() + 0.1
                self._send(appender, payloads, arrivals, begun, live)
                self._await(arrivals, lambda: self._frame(arrivals, begun, self._count, live))
            took = float(np.max(arrivals.at)) - begun
            self._latencies = arrivals.at - self._due(begun)
        with self._phases.phase(f"{self._count:,} transfers, {self._rate:,.0f}/s offered") as phase:
            phase.outcome = f"{self._count / took:,.0f}/s done in {took:.1f} s"

    def _send(
        self, appender: Appender, payloads: list[bytes], arrivals: Arrivals, begun: float, live: Any
    ) -> None:
        sent, shown = 0, 0.0
        while sent < self._count:
            now = time.monotonic()
            due = min(self._count, int((now - begun) * self._rate) + 1)
            if due > sent:
                appender.send(payloads[sent:due])
                sent = due
            appender.poll()
            if now - shown > _SHOW_S:
                self._frame(arrivals, begun, sent, live)
                shown = now
                self._engine.check()
            time.sleep(_TICK_S)
        appender.flush()

    def prove(self) -> dict[str, Any]:
        """Read everything back."""
        engine, (results_start, changes_start) = self._engine, self._starts
        expected = self._loads + self._count
        with self._phases.phase("Reading every result back") as phase:
            verdicts = read_results(
                engine.connection, engine.names.results, expected,
                id_prefix=self._prefix, starts=results_start,
            )  # fmt: skip
            phase.outcome = f"{verdicts.answered:,} of {expected:,}"
        settle(engine.connection, engine.names, engine.check)
        with self._phases.phase("Adding up every balance") as phase:
            ledger = read_changes(
                engine.connection, engine.names.changes, key_prefix=self._keys, starts=changes_start
            )
            phase.outcome = f"{ledger.total:,}"
        total = self._accounts * BALANCE
        problems = ledger.problems(self._accounts, total)
        problems += _verdict_problems(verdicts, ledger.changes, self._accounts)
        p50, p99 = np.percentile(self._latencies * 1000, (50, 99))
        return {
            "proved": not problems,
            "problems": problems,
            "accounts": ledger.accounts,
            "money_before": total,
            "money_after": ledger.total,
            "least_balance_ever": ledger.least,
            "transactions": expected,
            "results": verdicts.answered,
            "results_again": verdicts.again,
            "committed": verdicts.statuses.get("committed", 0),
            "aborted": verdicts.statuses.get("aborted", 0),
            "rejected": verdicts.statuses.get("rejected", 0),
            "changes": ledger.changes,
            "rate": self._rate,
            "latency_ms": {"p50": round(float(p50), 1), "p99": round(float(p99), 1)},
        }

    def _arrivals(self, first: int, count: int) -> Arrivals:
        engine = self._engine
        return Arrivals(engine.connection, engine.results, first, count, self._prefix.encode())

    def _await(self, arrivals: Arrivals, show: Callable[[], object]) -> None:
        def done() -> bool:
            show()
            return arrivals.missing == 0

        wait_until(
            done, "every result was there", _LATE_S_MAX, check=self._engine.check, poll_s=0.05
        )

    def _due(self, begun: float) -> Any:
        return begun + np.arange(self._count) / self._rate

    def _frame(self, arrivals: Arrivals, begun: float, sent: int, live: Any) -> None:
        """Draw the display once."""
        if live is None:
            return
        now, at = time.monotonic(), arrivals.at
        recent = at > now - _RECENT_S
        late = (at - self._due(begun))[recent] * 1000
        status: PipelineStatus = self._engine.status()
        live.update(_frame(self._count, sent, len(at) - arrivals.missing, late, status))


@contextmanager
def _display(console: Console) -> Iterator[Live | None]:
    """A live display, where there is a terminal."""
    if not console.is_terminal:
        yield None
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield live


def _frame(count: int, sent: int, done: int, late_ms: Any, status: PipelineStatus) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    p50, p99 = np.percentile(late_ms, (50, 99)) if len(late_ms) else (0.0, 0.0)
    for name, value in (
        ("transfers", f"{bar(done, count)} {done:,} of {count:,}"),
        ("throughput", f"{len(late_ms) / _RECENT_S:,.0f}/s"),
        ("latency", f"p50 {p50:,.0f} ms, p99 {p99:,.0f} ms"),
        ("waiting", f"{sent - done:,}"),
        ("resolved seq", f"{status.resolved or 0:,}"),
        ("lag, batch", f"{status.lag or 0:,} records, {status.batch_ms or 0:,.0f} ms"),
    ):
        table.add_row(name, value)
    return table


def _verdict_problems(verdicts: Any, changes: int, accounts: int) -> list[str]:
    """What is wrong with the number of results and changes."""
    found = []
    if verdicts.lost:
        found.append(f"{verdicts.lost:,} transactions have no result")
    loads = -(-accounts // w.KEYS_A_LOAD)
    committed = verdicts.statuses.get("committed", 0)
    if sum(verdicts.statuses.values()) != verdicts.expected + verdicts.again:
        found.append("the statuses do not add up to the results")
    expected = accounts + 2 * (committed - loads)
    if not verdicts.again and changes != expected:
        found.append(f"{changes:,} changes instead of {expected:,} for {committed:,} commits")
    return found


def _tell(answer: dict[str, Any], console: Console) -> None:
    late = answer["latency_ms"]
    console.print(
        f"{answer['transactions']:,} transactions: {answer['committed']:,} committed, "
        f"{answer['aborted']:,} aborted, {answer['results']:,} answered; "
        f"latency p50 {late['p50']:,.0f} ms, p99 {late['p99']:,.0f} ms.",
        soft_wrap=True,
    )
    console.print(
        f"{answer['accounts']:,} accounts, {answer['changes']:,} changes read back. Money before: "
        f"{answer['money_before']:,}; money after: {answer['money_after']:,}; least balance ever: "
        f"{answer['least_balance_ever']:,}.",
        soft_wrap=True,
    )
    for problem in answer["problems"]:
        console.print(f"[red]✗[/red] {problem}")
    if answer["proved"]:
        console.print("[green]✓[/green] No money was made or lost, and no account was overdrawn.")
    else:
        console.print("The proof FAILED: please report it.")
