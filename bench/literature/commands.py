"""The commands of the benchmarks of the literature."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.console import Console

from bench import command as c
from bench.keeping import keep, require_place
from bench.literature import sss as sss_runs
from bench.literature import tpcc as tpcc_runs
from bench.literature import tspoon as tspoon_runs
from bench.literature import voter_workflow as voter_runs
from bench.literature import ycsb as ycsb_runs
from bench.literature.driver import StudyOptions
from bench.literature.report import show
from bench.literature.voter import VoterOptions
from streamydb.cli.phases import Phases
from streamydb.limits import max_offsets

__all__ = ["QUICK", "literature", "sized", "sss", "tpcc", "tspoon", "voter", "ycsb"]

_O = TypeVar("_O", bound=StudyOptions)
Measure = Callable[[Any, Phases], dict[str, Any]]

_FULL: Final[dict[str, Any]] = {"repetitions": 3, "latency_rate": 500.0, "latency_s": 20.0}
_SHORT: Final[dict[str, Any]] = {"repetitions": 1, "latency_rate": 200.0, "latency_s": 6.0}

FULL: Final[dict[type[StudyOptions], dict[str, Any]]] = {
    tspoon_runs.TspoonOptions: {"transactions": 200_000},
    VoterOptions: {"transactions": 50_000, "warm_up_transactions": 30_000},
    ycsb_runs.YcsbOptions: {"transactions": 60_000},
    sss_runs.SssOptions: {},
    tpcc_runs.TpccOptions: {"transactions": 30_000},
}
"""What a full run takes where nothing else is said; the rest stands in the options."""

QUICK: Final[dict[type[StudyOptions], dict[str, Any]]] = {
    tspoon_runs.TspoonOptions: {"transactions": 20_000, "accounts": 5_000, "query_rate": 40.0},
    VoterOptions: {
        "transactions": 4_000, "warm_up_transactions": 1_500, "every": 600, "phones": 30_000,
    },
    ycsb_runs.YcsbOptions: {"transactions": 4_000, "keys": 10_000, "copy_limit": False},
    sss_runs.SssOptions: {"clients": 32, "seconds": 5.0, "warm_up_s": 5.0},
    tpcc_runs.TpccOptions: {
        "transactions": 4_000, "items": 2_000, "customers": 100, "terminals_s": 30.0,
        "ramp_s": 25.0,
    },
}  # fmt: skip
"""What `--quick` takes instead: a run of less than two minutes."""

Quick = Annotated[bool, typer.Option("--quick", help="A small run, in less than two minutes.")]
Replay = Annotated[
    bool, typer.Option("--replay/--no-replay", help="Compare with a serial replay of the log.")
]
CopyLimit = Annotated[
    bool | None,
    typer.Option(
        "--copy-limit/--no-copy-limit",
        help="Also measure a Spark job that only copies as much (default: unless quick).",
    ),
]
Count = Annotated[
    int | None, typer.Option("--transactions", min=1, help="Transactions of a measured backlog.")
]
Times = Annotated[
    int | None, typer.Option("--repetitions", min=1, help="Of each case; the median counts.")
]
At = Annotated[float | None, typer.Option("--rate", min=1, help="Transactions/s for the latency.")]
Seconds = Annotated[
    float | None, typer.Option("--seconds", min=0, help="Seconds of one measurement over time.")
]
Keys = Annotated[int | None, typer.Option("--keys", min=16, help="Keys of the database.")]


def sized(kind: type[_O], *, quick: bool, given: dict[str, Any]) -> _O:
    """The options of a run: what is given, the rest as a quick or a full run takes it."""
    common, own = (_SHORT, QUICK) if quick else (_FULL, FULL)
    said = {name: value for name, value in given.items() if value is not None}
    taken = {**common, **own[kind], **said}
    derived = {
        "warm_up_transactions": max(2, min(taken.get("transactions", 2), 30_000)),
        "max_offsets": max_offsets(taken.get("shards", 1)),
    }
    return kind(**{**derived, **taken})


def _run(
    measure: Measure, kind: type[StudyOptions], *, quick: bool, output: Path | None, json: bool,
    **given: Any,
) -> None:  # fmt: skip
    options = sized(kind, quick=quick, given=given)

    def measured(phases: Phases) -> dict[str, Any]:
        return {**measure(options, phases), "quick": quick}

    c.deliver(measured, show, output, json=json)


def tspoon(
    *,
    accounts: Annotated[
        int | None, typer.Option("--accounts", min=1_000, help="Of each state (default: 100000).")
    ] = None,
    theta: c.Theta = 0.99,
    states: Annotated[int, typer.Option("--states", min=1, max=5, help="Of one subgraph.")] = 3,
    subgraphs: Annotated[int, typer.Option("--subgraphs", min=1, max=5, help="Beside it.")] = 3,
    query_rate: Annotated[
        float | None, typer.Option("--query-rate", min=1, help="Queries/s (default: 100).")
    ] = None,
    shards: c.Shards = 1,
    transactions: Count = None,
    repetitions: Times = None,
    rate: At = None,
    seconds: Seconds = None,
    quick: Quick = False,
    replay: Replay = True,
    seed: c.Seed = 1,
    folder: c.Folder = None,
    output: c.Output = None,
    json: c.Json = False,
) -> None:
    """TSpoon's bank: transfers through one and several subgraphs, with queries beside them."""
    _run(
        tspoon_runs.tspoon, tspoon_runs.TspoonOptions, quick=quick, output=output, json=json,
        accounts=accounts, theta=theta, states=states, subgraphs=subgraphs, query_rate=query_rate,
        shards=shards, transactions=transactions, repetitions=repetitions, latency_rate=rate,
        latency_s=seconds, replay=replay, seed=seed, parent=folder,
    )  # fmt: skip


def voter(
    *,
    contestants: Annotated[
        int, typer.Option("--contestants", min=2, max=99, help="Of the show.")
    ] = 12,
    every: Annotated[
        int | None, typer.Option("--every", min=1, help="Votes until a removal (default: 20000).")
    ] = None,
    phones: Annotated[
        int | None, typer.Option("--phones", min=1, help="Who may vote (default: 1000000).")
    ] = None,
    shards: c.Shards = 1,
    transactions: Count = None,
    repetitions: Times = None,
    rate: At = None,
    seconds: Seconds = None,
    quick: Quick = False,
    replay: Replay = True,
    seed: c.Seed = 1,
    folder: c.Folder = None,
    output: c.Output = None,
    json: c.Json = False,
) -> None:
    """S-Store's leaderboard maintenance: the winner must be that of a serial run."""
    _run(
        voter_runs.voter, VoterOptions, quick=quick, output=output, json=json,
        contestants=contestants, every=every, phones=phones, shards=shards,
        transactions=transactions, repetitions=repetitions, latency_rate=rate, latency_s=seconds,
        replay=replay, seed=seed, parent=folder,
    )  # fmt: skip


def ycsb(
    *,
    keys: Keys = None,
    operations: Annotated[
        int, typer.Option("--operations", min=1, help="Different keys a transaction touches.")
    ] = 10,
    read_share: Annotated[
        float, typer.Option("--read-share", min=0, max=1, help="Share of them only read.")
    ] = 0.5,
    theta: Annotated[
        str, typer.Option("--theta", help="Exponents of the Zipf distribution, a case for each.")
    ] = "0,0.9",
    partitions: Annotated[
        int, typer.Option("--partitions", min=2, max=64, help="Slices of the keys.")
    ] = 4,
    multi_share: Annotated[
        float, typer.Option("--multi-share", min=0, max=1, help="Transactions on two of them.")
    ] = 0.5,
    value_bytes: Annotated[
        int, typer.Option("--value-bytes", min=1, max=100_000, help="Data of a record.")
    ] = 100,
    shards: c.Shards = 1,
    transactions: Count = None,
    repetitions: Times = None,
    rate: At = None,
    seconds: Seconds = None,
    quick: Quick = False,
    copy_limit: CopyLimit = None,
    replay: Replay = True,
    seed: c.Seed = 1,
    folder: c.Folder = None,
    output: c.Output = None,
    json: c.Json = False,
) -> None:
    """YCSB with transactions (Q-Store): puts and read-modify-writes of several records."""
    _run(
        ycsb_runs.ycsb, ycsb_runs.YcsbOptions, quick=quick, output=output, json=json, keys=keys,
        operations=operations, read_share=read_share, thetas=_numbers(theta),
        partitions=partitions, multi_share=multi_share, value_bytes=value_bytes, shards=shards,
        transactions=transactions, repetitions=repetitions, latency_rate=rate, latency_s=seconds,
        copy_limit=copy_limit, replay=replay, seed=seed, parent=folder,
    )  # fmt: skip


def _numbers(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 0:
        raise typer.BadParameter(f"{text!r} is not a list of exponents like 0,0.9")
    return found


def sss(
    *,
    keys: Keys = None,
    clients: Annotated[
        int | None, typer.Option("--clients", min=1, help="Under way at once (default: 100).")
    ] = None,
    theta: Annotated[
        float, typer.Option("--theta", min=0, help="Exponent of the Zipf distribution.")
    ] = 0.0,
    shards: c.Shards = 1,
    seconds: Seconds = None,
    quick: Quick = False,
    replay: Replay = True,
    seed: c.Seed = 1,
    folder: c.Folder = None,
    output: c.Output = None,
    json: c.Json = False,
) -> None:
    """SSS's mix over HTTP: 2-key updates and abort-free read-only transactions of 2 to 16 keys."""
    _run(
        sss_runs.sss, sss_runs.SssOptions, quick=quick, output=output, json=json, keys=keys,
        clients=clients, theta=theta, shards=shards, seconds=seconds, replay=replay, seed=seed,
        parent=folder,
    )  # fmt: skip


def tpcc(
    *,
    warehouses: Annotated[int, typer.Option("--warehouses", min=1, max=10_000, help="Scale.")] = 2,
    items: Annotated[
        int | None, typer.Option("--items", min=100, help="Of the catalogue (default: 100000).")
    ] = None,
    customers: Annotated[
        int | None, typer.Option("--customers", min=10, help="Of a district (default: 3000).")
    ] = None,
    terminals: Annotated[
        bool,
        typer.Option(
            "--terminals", help="No backlogs: ten terminals a warehouse, which key in and think."
        ),
    ] = False,
    terminals_s: Annotated[
        float | None,
        typer.Option("--terminals-s", min=20, help="Seconds that they are measured (120)."),
    ] = None,
    shards: c.Shards = 1,
    transactions: Count = None,
    repetitions: Times = None,
    rate: At = None,
    seconds: Seconds = None,
    quick: Quick = False,
    replay: Replay = True,
    seed: c.Seed = 1,
    folder: c.Folder = None,
    output: c.Output = None,
    json: c.Json = False,
) -> None:
    """TPC-C: its five transactions, judged by the specification's consistency conditions."""
    _run(
        tpcc_runs.tpcc, tpcc_runs.TpccOptions, quick=quick, output=output, json=json,
        warehouses=warehouses, items=items, customers=customers, terminals=terminals,
        terminals_s=terminals_s, shards=shards, transactions=transactions,
        repetitions=repetitions, latency_rate=rate, latency_s=seconds, replay=replay, seed=seed,
        parent=folder,
    )  # fmt: skip


ALL: Final[dict[str, tuple[Measure, type[StudyOptions]]]] = {
    "tspoon": (tspoon_runs.tspoon, tspoon_runs.TspoonOptions),
    "voter": (voter_runs.voter, VoterOptions),
    "ycsb": (ycsb_runs.ycsb, ycsb_runs.YcsbOptions),
    "sss": (sss_runs.sss, sss_runs.SssOptions),
    "tpcc": (tpcc_runs.tpcc, tpcc_runs.TpccOptions),
}


def literature(
    *,
    results: Annotated[
        Path | None, typer.Option("--results", help="Keep an answer of each in this folder.")
    ] = None,
    shards: c.Shards = 1,
    quick: Quick = False,
    replay: Replay = True,
    seed: c.Seed = 1,
    folder: c.Folder = None,
    json: c.Json = False,
) -> None:
    """All five, one after the other: tspoon, voter, ycsb, sss, tpcc."""

    def measured(phases: Phases) -> dict[str, Any]:
        found = {}
        if results is not None:
            require_place(results / "literature-tspoon.json")
        for name, (measure, kind) in ALL.items():
            phases.console.print(f"[bold]{name}[/bold]")
            given = {"shards": shards, "seed": seed, "parent": folder, "replay": replay}
            options = sized(kind, quick=quick, given=given)
            found[name] = {**measure(options, phases), "quick": quick}
            if results is not None:
                keep(found[name], results / f"literature-{name}.json")
        whole = all(each["invariants_ok"] for each in found.values())
        return {"benchmark": "literature", "invariants_ok": whole, "answers": found}

    c.deliver(measured, _show_all, None, json=json)


def _show_all(answer: dict[str, Any], console: Console) -> None:
    for each in answer["answers"].values():
        show(each, console)
