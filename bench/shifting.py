"""`streamydb bench shifting`: the load comes and goes, and the gears shift.

Transactions are due at a rate that goes from nothing to 100,000 a second and back, again and again,
in steps and in ramps. A latency runs from the time at which a transaction was due until its result
was read, of every transaction. `<db>.control` tells which gear led when. The client
lingers as one of the highest rate does (`bench.appending.linger_ms`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from bench.appending import Appender, linger_ms
from bench.bank import BankOptions
from bench.common import Run
from bench.engine import EngineOptions, fresh_engine
from bench.errors import BenchError
from bench.latency import Arrivals, summary
from bench.load_profile import FORMS, Floats, LoadProfile
from bench.machine import machine
from bench.order import read_order
from bench.waiting import wait_until
from streamydb import __version__
from streamydb.cli.phases import Phases
from streamydb.errors import RecordError
from streamydb.kafka import TopicNames
from streamydb.kafka.reader import TopicReader
from streamydb.records.control import LeaderClaim, decode_message, owner_of
from streamydb.records.gears import MICRO_BATCH, REAL_TIME

__all__ = ["FORMS", "LEVELS", "Lead", "ShiftingOptions", "offer", "parts_of", "shifting", "show"]

LEVELS: Final = (500.0, 2_000.0, 20_000.0, 100_000.0)
"""Transactions a second of the plateaus."""

_DRAIN_S_MAX: Final = 240.0
_TICK_S: Final = 0.002
_SEND_MAX: Final = 5_000
_NOTE_S: Final = 0.5
_POINT_S: Final = 0.25
_GENERATED_MAX: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftingOptions(BankOptions):
    """What to measure; see `streamydb bench shifting --help`."""

    cycles: int = 10
    forms: tuple[str, ...] = FORMS
    levels: tuple[float, ...] = LEVELS
    plateau_s: float = 4.0
    rest_s: float = 15.0
    warm_up_s: float = 20.0

    def profile(self) -> LoadProfile:
        """Return the load that is offered."""
        return LoadProfile.cycles(self.levels, self.plateau_s, self.cycles, self.forms, self.rest_s)


@dataclass(frozen=True, slots=True)
class Lead:
    """A gear leads from ``at_s`` on, in seconds since the load began."""

    at_s: float
    gear: str


@dataclass(frozen=True, slots=True)
class _Load:
    """The outcome of the load; seconds since it began.

    ``begun_ms``: when it began, in ms since 1970. ``due_s``, ``sent_s``, ``read_s``: when each
    transaction was due and sent, and its result read; (n,).
    """

    begun_ms: float
    due_s: Floats
    sent_s: Floats
    read_s: Floats


def shifting(options: ShiftingOptions, phases: Phases) -> dict[str, Any]:
    """Offer the load and tell what came of it.

    Raises:
        BenchError: something failed or is lost, or changes are not in order.
    """
    wanted = EngineOptions(max_offsets=options.max_offsets, extra=("--gear", "both"))
    with fresh_engine(wanted, options.parent, phases) as engine:
        run = Run(options, engine, phases)
        run.load_accounts(options.accounts)
        run.warm_up(options.workload("uniform"))
        run.await_real_time()
        rate = options.levels[0]
        title = f"Warming the real-time gear up at {rate:,.0f}/s"
        run.latencies(options.workload("uniform"), rate, 0.0, options.warm_up_s, title)
        load = _offered(run, options)
        leads = leads_of(engine.connection, engine.names, load.begun_ms)
        run.stop()
        with phases.phase("Checking the order of all changes") as phase:
            order = read_order(
                engine.connection, engine.names.changes, lambda n: phase.note(f"{n:,}")
            )
        proof = {
            **run.answered(),
            **run.balances(),
            "changes_again": order.again,
            "resolved_records": order.resolved,
            "resolved_late": order.late,
        }
        return {
            "benchmark": "shifting", "streamydb": __version__, "cycles": options.cycles,
            "forms": options.forms, "levels": options.levels, "plateau_s": options.plateau_s,
            "rest_s": options.rest_s, "accounts": options.accounts,
            "linger_ms": linger_ms(max(options.levels)),
            "peak_rss_mb": round(engine.memory.peak_mb, 1),
            **_told(options.profile(), load, leads), "proof": proof, "machine": machine(),
        }  # fmt: skip


def _offered(run: Run, options: ShiftingOptions) -> _Load:
    """Offer the load; all transactions are made before it begins."""
    profile, engine, first = options.profile(), run.engine, run.appender.appended
    due_s, workload = profile.due_s(), options.workload("uniform")
    with run.phases.phase(f"Making {len(due_s):,} transactions"):
        payloads: list[bytes] = []
        while len(payloads) < len(due_s):
            count = min(_GENERATED_MAX, len(due_s) - len(payloads))
            payloads += workload.payloads(first + len(payloads), count)
    cycles = f"{options.cycles} cycles up to {max(options.levels):,.0f}/s"
    with run.phases.phase(f"Load: {cycles} in {profile.seconds:,.0f} s") as phase:
        appender = Appender(
            engine.connection, engine.names.transactions, linger_ms=linger_ms(max(options.levels))
        )
        with Arrivals(engine.connection, engine.results, first, len(due_s)) as arrivals:
            begun_s = time.monotonic() + 0.1
            begun_ms = 1_000 * (time.time() + begun_s - time.monotonic())

            def note(sent: int) -> None:
                engine.check()
                phase.note(f"{sent:,} sent, {len(due_s) - arrivals.missing:,} answered")

            sent_s = offer(appender, payloads, due_s, begun_s, note)
            wait_until(
                lambda: arrivals.missing == 0,
                "all results were there",
                _DRAIN_S_MAX,
                check=engine.check,
            )
            read_s = arrivals.at - begun_s
        late_ms = 1_000 * (read_s - due_s)
        phase.outcome = f"p50 {np.median(late_ms):,.1f} ms, most {late_ms.max():,.0f} ms"
    run.appender.appended += len(due_s)
    return _Load(begun_ms, due_s, sent_s, read_s)


def offer(
    appender: Appender,
    payloads: list[bytes],
    due_s: Floats,
    begun_s: float,
    note: Callable[[int], object],
) -> Floats:
    """Send each transaction when it is due, or later if this process is too slow.

    Args:
        appender: sends.
        payloads: the transactions; (n,).
        due_s: when each is due, in seconds since ``begun_s``, in order; (n,).
        begun_s: the beginning, by the monotonic clock.
        note: is told now and then how many were sent.

    Returns:
        When each was handed to Kafka's client, in seconds since the beginning; (n,).
    """
    sent, noted_s = 0, begun_s
    sent_s: Floats = np.zeros(len(due_s))
    while sent < len(payloads):
        now_s = time.monotonic()
        due = min(int(np.searchsorted(due_s, now_s - begun_s, "right")), sent + _SEND_MAX)
        if due > sent:
            appender.send(payloads[sent:due])
            sent_s[sent:due] = time.monotonic() - begun_s
            sent = due
        appender.poll()
        if now_s - noted_s > _NOTE_S:
            noted_s = now_s
            note(sent)
        if due_s[min(sent, len(due_s) - 1)] > time.monotonic() - begun_s:
            time.sleep(_TICK_S)
    appender.flush()
    return sent_s


def leads_of(connection: dict[str, str], names: TopicNames, begun_ms: float) -> list[Lead]:
    """Return which gear led from when on, as `<db>.control` tells it, from before the load on.

    The first claim of an epoch holds.
    """
    found: list[Lead] = []
    epoch = 0
    with TopicReader(connection, names.control) as reader:
        for record in reader.whole():
            try:
                message = decode_message(record.value())
            except RecordError:
                continue
            if not isinstance(message, LeaderClaim) or message.epoch <= epoch:
                continue
            epoch = message.epoch
            own = owner_of(message.pipeline) == message.pipeline
            at_s = (record.timestamp()[1] - begun_ms) / 1_000
            found.append(Lead(round(at_s, 3), MICRO_BATCH if own else REAL_TIME))
    return found


def _told(profile: LoadProfile, load: _Load, leads: list[Lead]) -> dict[str, Any]:
    """Return the figures: over time, by gear, by rate, and of the shifts."""
    if not leads:
        raise BenchError("the control topic does not say which gear led")
    late_s = load.read_s - load.due_s
    gears = _gears_at(load.due_s, leads)
    rates = np.round(profile.rate_at(load.due_s))
    shifts = [lead for lead in leads if 0 <= lead.at_s <= load.read_s.max()]
    apart = np.diff([lead.at_s for lead in shifts])
    levels = [rate for rate in np.unique(profile.rates) if rate > 0 and (rates == rate).any()]
    return {
        "transactions": len(load.due_s), "seconds": round(profile.seconds, 1),
        "latency_ms": summary(late_s),
        "by_gear": {
            gear: summary(late_s[gears == gear])
            for gear in (REAL_TIME, MICRO_BATCH) if (gears == gear).any()
        },
        "by_rate": {f"{rate:.0f}": summary(late_s[rates == rate]) for rate in levels},
        "reached": _reached(load),
        "sent_late_ms_max": round(1_000 * float((load.sent_s - load.due_s).max()), 1),
        "shifts": [{"at_s": lead.at_s, "gear": lead.gear} for lead in shifts],
        "shifts_apart_s_min": round(float(apart.min()), 3) if len(apart) else None,
        "points": _points(profile, load, leads),
    }  # fmt: skip


def _gears_at(at_s: Floats, leads: list[Lead]) -> npt.NDArray[np.str_]:
    at = np.searchsorted([lead.at_s for lead in leads], at_s, "right") - 1
    return np.array([lead.gear for lead in leads])[np.maximum(at, 0)]


def _reached(load: _Load) -> dict[str, int]:
    """Return the most that was sent, and answered, in any second of the load."""
    edges = np.arange(0.0, load.read_s.max() + 1.0)
    return {
        f"{name}_per_s_max": int(np.histogram(at_s, edges)[0].max())
        for name, at_s in (("sent", load.sent_s), ("answered", load.read_s))
    }


def _points(profile: LoadProfile, load: _Load, leads: list[Lead]) -> list[dict[str, Any]]:
    """Return rates, latencies and the gear over time; latencies by the time of being due."""
    edges = np.arange(0.0, max(profile.seconds, load.read_s.max()) + _POINT_S, _POINT_S)
    at = np.searchsorted(load.due_s, edges)
    sent, done = (np.histogram(x, edges)[0] / _POINT_S for x in (load.sent_s, load.read_s))
    late_ms = 1_000 * (load.read_s - load.due_s)
    gears = _gears_at(edges, leads)
    found: list[dict[str, Any]] = []
    for number in range(len(edges) - 1):
        here = late_ms[at[number] : at[number + 1]]
        p50, p99, most = np.percentile(here, (50, 99, 100)) if len(here) else (None,) * 3
        found.append({
            "to_s": round(float(edges[number + 1]), 2),
            "offered_per_s": round(len(here) / _POINT_S), "sent_per_s": round(sent[number]),
            "done_per_s": round(done[number]), "gear": str(gears[number]),
            **{
                name: None if value is None else round(float(value), 2)
                for name, value in (("p50_ms", p50), ("p99_ms", p99), ("max_ms", most))
            },
        })  # fmt: skip
    return found


def parts_of(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the latencies of an answer, by the gear that led, by the rate, and of all,
    by title.
    """
    return {
        **{f"{gear} gear leads": late for gear, late in answer["by_gear"].items()},
        **{f"{int(rate):,}/s": late for rate, late in answer["by_rate"].items()},
        "all": answer["latency_ms"],
    }


def show(answer: dict[str, Any], console: Console) -> None:
    """Print the answer."""
    table = Table("latency, ms", "transactions", "p50", "p90", "p99", "max", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, late in parts_of(answer).items():
        figures = (f"{late[figure]:,.1f}" for figure in ("p50", "p90", "p99", "max"))
        table.add_row(name, f"{late['count']:,}", *figures)
    console.print(table)
    reached, proof = answer["reached"], answer["proof"]
    apart = answer["shifts_apart_s_min"]
    console.print(
        f"{len(answer['shifts'])} shifts, {'-' if apart is None else apart} s apart at least. "
        f"Most in a second: {reached['sent_per_s_max']:,} sent, "
        f"{reached['answered_per_s_max']:,} answered; sent at most "
        f"{answer['sent_late_ms_max']:,} ms late. {proof['results']:,} transactions, each with "
        f"its result; {proof['accounts']:,} balances add up; {proof['changes']:,} changes in order."
    )
