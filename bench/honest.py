"""Tables of copies, sync and the peer: of README and docs/figures.md; see `bench.table`.

Each function takes kept answers of `streamydb bench` and returns the lines of its section.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bench.copies import TopicCopies, kept_copies
from bench.sections import markdown

__all__ = [
    "CONTENTION", "FIGURES_KEPT", "GEAR_KEPT", "PEER_KEPT", "copies_rows", "cost_lines", "costs_of",
    "gear_lines", "latency_kept", "machine_lines", "peer_lines", "rate_ratio",
]  # fmt: skip

FIGURES_KEPT: Final = ("copies-1", "copies-1-sync", "copies-3", "copies-3-sync")
"""Names of kept answers, the plain one first."""

PEER_KEPT: Final = "beside-postgresql"
GEAR_KEPT: Final = "latency-gear-copies-1-sync"

CONTENTION: Final = {
    "uniform": "uniform", "zipf": "Zipf 0.99", "hotpair": "one hot pair",
}  # fmt: skip

Answer = dict[str, Any]


def latency_kept(name: str) -> str:
    """Return the name of the kept latency beside the kept rates of this name."""
    return f"latency-{name}"


def machine_lines(answer: Answer) -> list[str]:
    """Say where it was measured."""
    machine = answer["machine"]
    told = (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gb']:g} GB, "
        f"load {machine['load']} at the end, PySpark {machine['pyspark']}. Everything runs on this "
        "machine: all brokers, the pipeline, and the load."
    )
    return [told]


def rate_ratio(answer: Answer, plain: Answer, distribution: str = "uniform") -> float:
    """Return the rate of an answer as a share of the plain one's."""
    rates = [each["distributions"][distribution]["txn_per_s"] for each in (answer, plain)]
    return float(rates[0] / rates[1])


def copies_rows(answers: Sequence[Answer], latencies: Sequence[Answer]) -> list[str]:
    """Return a row for each way to keep the topics; the first answer is the plain one."""
    rows = []
    for answer, late in zip(answers, latencies, strict=True):
        rates = answer["distributions"]
        times = late["latency_ms"]
        rows.append([
            str(kept_copies(answer).replication), _synced(kept_copies(answer)),
            *(f"{rates[name]['txn_per_s']:,.0f}/s" if name in rates else "-"
              for name in CONTENTION),
            f"{rate_ratio(answer, answers[0]):.2f}",
            f"{times['p50']:.0f} ms / {times['p99']:.0f} ms",
            f"{rates['uniform']['brokers_share']:.0%}",
        ])  # fmt: skip
    head = [
        "copies", "synced", *CONTENTION.values(), "of the first row's rate",
        "latency at 500/s, p50 / p99", "brokers' share of the processors",
    ]  # fmt: skip
    return markdown(head, rows)


def costs_of(answer: Answer, distribution: str = "uniform") -> dict[str, float]:
    """Return processor time of a transfer in µs by part; the append is counted, too."""
    row = answer["distributions"][distribution]
    used, appending = row["cpu_us"], row["append_cpu_us"]
    return {
        "pipeline": used["pipeline"] + appending["pipeline"],
        "brokers": used["brokers"] + appending["brokers"],
        "client": used["client"] + appending["client"],
    }  # fmt: skip


def cost_lines(answers: Sequence[Answer], peer: Answer) -> list[str]:
    """Return what a transfer costs, in streamy-db's ways and in PostgreSQL, uniform."""
    rows = []
    for answer in answers:
        copies, used, memory = kept_copies(answer), costs_of(answer), answer["memory_mb"]
        name = f"streamy-db, {_named(copies)}"
        rows.append([
            name, f"{used['pipeline'] + used['brokers']:.1f}", f"{used['brokers']:.1f}",
            f"{used['client']:.1f}", f"{memory['pipeline'] + memory['brokers']:,.0f}",
            f"{memory['brokers']:,.0f}", "-",
        ])  # fmt: skip
    rows[0][-1] = f"{peer['disk_bytes_each']:,.0f}"
    for sync in (True, False):
        found = [row for row in peer["peer"]["rows"]
                 if row["sync"] == sync and row["distribution"] == "uniform"]  # fmt: skip
        best = max(found, key=lambda row: float(row["txn_per_s"]))
        rows.append([
            f"PostgreSQL, synchronous_commit {_on(sync)}, {best['clients']} connections",
            f"{best['cpu_us']['server']:.1f}", "-", f"{best['cpu_us']['client']:.1f}",
            f"{best['memory_mb']:,.0f}", "-", f"{best['disk_bytes_each']:,.0f}",
        ])  # fmt: skip
    head = [
        "uniform transfers", "processor time of the database, µs", "of it brokers",
        "processor time of the client, µs", "memory, MB", "of it brokers",
        "disk, bytes",
    ]  # fmt: skip
    return markdown(head, rows)


def peer_lines(answer: Answer) -> list[str]:
    """Return the rates of both, by contention and number of clients."""
    peer = answer["peer"]
    tried = max(row["client_percent"] for row in peer["rows"]) / answer["machine"]["cores"]
    told = (
        f"PostgreSQL {peer['version']}, SERIALIZABLE; {answer['seconds']:g} s of each row. "
        f"Transfers a second; p50 / p99. The load took at most {tried:.0f} % of the processors "
        "beside PostgreSQL."
    )
    backlog = {name: row["txn_per_s"] for name, row in answer["distributions"].items()}
    rows = []
    for name, title in CONTENTION.items():
        if name not in backlog:
            continue
        synced = "synced" if answer["sync"] else "not synced"
        rows.append([title, "a backlog", f"{backlog[name]:,.0f}/s", "", "", ""])
        for row in (row for row in answer["closed"] if row["distribution"] == name):
            pair = [_peer_row(peer, name, row["clients"], sync=sync) for sync in (True, False)]
            rows.append([
                title, str(row["clients"]), _cell(row), *(map(_cell, pair)),
                " / ".join(f"{each['again_each']:.2f}" for each in pair),
            ])  # fmt: skip
    head = [
        "", "clients", f"streamy-db, 1 copy, {synced}", "PostgreSQL, synchronous_commit on",
        "PostgreSQL, off", "PostgreSQL's tries again for each, on / off",
    ]  # fmt: skip
    return [told, "", *markdown(head, rows)]


def gear_lines(answer: Answer) -> list[str]:
    """Return the latency while the real-time gear leads."""
    late, copies = answer["latency_ms"], kept_copies(answer)
    told = (
        f"While the real-time gear leads ({_named(copies)}): p50 {_ms(late['p50'])}, p90 "
        f"{_ms(late['p90'])}, p99 {_ms(late['p99'])} ms at {answer['offered_per_s']:,.0f}/s."
    )
    return [told]


def _peer_row(peer: Answer, distribution: str, clients: int, *, sync: bool) -> Answer:
    return next(
        row for row in peer["rows"]
        if (row["distribution"], row["clients"], row["sync"]) == (distribution, clients, sync)
    )  # fmt: skip


def _cell(row: Answer) -> str:
    times = " / ".join(_ms(row[name]) for name in ("p50", "p99"))
    return f"{row['txn_per_s']:,.0f}/s; {times} ms"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _synced(copies: TopicCopies) -> str:
    return "yes" if copies.sync else "no"


def _named(copies: TopicCopies) -> str:
    text = "1 copy" if copies.replication == 1 else f"{copies.replication} copies"
    return f"{text}, synced" if copies.sync else text


def _on(sync: bool) -> str:  # noqa: FBT001 - a value to show
    return "on" if sync else "off"
