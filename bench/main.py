"""`streamydb bench`: the command line of the measurements."""

from __future__ import annotations

from typing import Annotated

import typer

from bench import bank as bank_runs
from bench import others
from bench.beside import BesideOptions
from bench.beside import beside as run_beside
from bench.beside import show as show_beside
from bench.command import (
    Accounts,
    BesidePeer,
    BesideSeconds,
    BulkTurns,
    Connections,
    CopyLimit,
    CountedSeconds,
    Distribution,
    Folder,
    Gear,
    Json,
    KeysSeries,
    LatencySeconds,
    MaxOffsets,
    Output,
    Plan,
    Rate,
    Repetitions,
    Replication,
    Seed,
    Shards,
    Sustain,
    SustainedInterval,
    SustainedLoad,
    Synced,
    Theta,
    Transactions,
    WarmUp,
    WarmUpSeconds,
    deliver,
    has_gears,
    named,
    numbers,
)
from bench.copies import copies_of
from bench.floor import FORM_NAMES, FloorOptions
from bench.floor import floor as run_floor
from bench.floor import show as show_floor
from bench.gears import beside_one_gear
from bench.gears import show as show_gears
from bench.idle import IdleOptions, Stage
from bench.idle import idle as run_idle
from bench.idle import show as show_idle
from bench.literature.commands import literature, sss, tpcc, tspoon, voter, ycsb
from bench.peer import POSTGRESQL, PeerOptions
from bench.peer import beside as run_peer
from bench.peer import show as show_peer
from bench.recovery import GEAR_KINDS, RecoveryOptions
from bench.recovery import KINDS as RECOVERY_KINDS
from bench.recovery import recovery as run_recovery
from bench.recovery import show as show_recovery
from bench.report import show
from bench.rest.cases import KEYS_MIN
from bench.rest.report import show as show_rest
from bench.rest.run import RestOptions
from bench.rest.run import rest as run_rest
from bench.scale import ScaleOptions
from bench.scale import scale as run_scale
from bench.scale import show as show_scale
from bench.serving import ServingOptions
from bench.serving import serving as run_serving
from bench.shifting import FORMS, LEVELS, ShiftingOptions
from bench.shifting import shifting as run_shifting
from bench.shifting import show as show_shifting
from bench.sql import SqlOptions
from bench.sql import show as show_sql
from bench.sql import sql as run_sql
from bench.workload import DISTRIBUTIONS
from streamydb.limits import max_offsets as max_offsets_of
from streamydb.records.gears import MICRO_BATCH

__all__ = [
    "app", "bank", "floor", "latency", "memory", "recovery", "rest", "scale", "serving", "shifting",
    "soak", "sql",
]  # fmt: skip

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Measure on a fresh broker and pipeline of its own, which end with the measurement.",
)
for _command in (tspoon, voter, ycsb, sss, tpcc, literature):
    app.command()(_command)


def _most(given: int | None, shards: int) -> int:
    return given or max_offsets_of(shards)


@app.command()
def bank(
    *,
    shards: Shards = 1,
    transactions: Transactions = 600_000,
    warm_up_transactions: WarmUp = None,
    repetitions: Repetitions = 3,
    accounts: Accounts = 100_000,
    distribution: Distribution = "all",
    theta: Theta = 0.99,
    plan: Plan = None,
    max_offsets: MaxOffsets = None,
    rate: Rate = 500.0,
    seconds: LatencySeconds = 20.0,
    sustain: Sustain = None,
    load: SustainedLoad = 1.5,
    interval: SustainedInterval = 10.0,
    keys_series: KeysSeries = None,
    sync: Synced = False,
    replication: Replication = 1,
    beside: BesidePeer = None,
    turns: BulkTurns = 6,
    connections: Connections = "1,4,16,64",
    beside_seconds: BesideSeconds = 5.0,
    gear: Gear = "micro-batch",
    copy_limit: CopyLimit = True,
    seed: Seed = 1,
    folder: Folder = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Transfers between two accounts: throughput, latency, memory, proof of the balances."""
    options = bank_runs.BankOptions(
        shards=shards, transactions=transactions, repetitions=repetitions, accounts=accounts,
        warm_up_transactions=warm_up_transactions or transactions, theta=theta, plan_limit=plan,
        distributions=named(distribution, DISTRIBUTIONS), max_offsets=_most(max_offsets, shards),
        latency_rate=rate, latency_s=seconds, copy_limit=copy_limit, seed=seed, parent=folder,
        copies=copies_of(replication, sync=sync), gears=has_gears(gear, shards),
    )  # fmt: skip
    if beside is not None and (keys_series or sustain):
        raise typer.BadParameter("--beside measures neither --keys-series nor --sustain")
    if keys_series is not None:
        sizes = numbers(keys_series, "numbers of accounts like 1000,100000", 2)
        then = None if sustain is None else (sustain, load)
        deliver(
            lambda phases: bank_runs.keys_series(options, sizes, phases, then, interval),
            show, output, json=json,
        )  # fmt: skip
    elif sustain is not None:
        deliver(
            lambda phases: bank_runs.sustained(options, sustain, load, phases, interval),
            show, output, json=json,
        )  # fmt: skip
    elif beside == MICRO_BATCH:
        deliver(lambda found: beside_one_gear(options, turns, found), show_gears, output, json=json)
    elif beside is not None:
        named(beside, (POSTGRESQL, MICRO_BATCH))
        clients = tuple(numbers(connections, "numbers of clients like 1,4,16,64", 1))
        both = PeerOptions(bank=options, clients=clients, seconds=beside_seconds)
        deliver(lambda phases: run_peer(both, phases), show_peer, output, json=json)
    else:
        deliver(lambda phases: bank_runs.bank(options, phases), show, output, json=json)


@app.command()
def latency(
    *,
    shards: Shards = 1,
    rate: Rate = 500.0,
    warm_up: WarmUpSeconds = 120.0,
    rise: Annotated[
        float, typer.Option("--rise", min=0, help="Seconds of the warm-up in which the rate grows.")
    ] = 0.0,
    seconds: CountedSeconds = 60.0,
    accounts: Accounts = 100_000,
    distribution: Distribution = "uniform",
    transactions: Transactions = 200_000,
    plan: Plan = None,
    max_offsets: MaxOffsets = None,
    sync: Synced = False,
    replication: Replication = 1,
    gear: Gear = "micro-batch",
    copy_limit: CopyLimit = True,
    beside: Annotated[
        int | None,
        typer.Option(
            "--beside",
            min=1,
            max=64,
            help="Also with so many shards, by turns; how much longer --shards takes. No backlog.",
        ),
    ] = None,
    turns: Annotated[int, typer.Option("--turns", min=1, help="Of each, with --beside.")] = 6,
    seed: Seed = 1,
    folder: Folder = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Latency of transfers that are due at a fixed rate, from the due time to the result read.

    A backlog and the copy limit are measured afterwards.
    """
    gears = has_gears(gear, shards)
    if gears and beside is not None:
        raise typer.BadParameter("--beside measures pipelines of one gear")
    if rise > (0.0 if beside else warm_up):
        raise typer.BadParameter("--rise is a part of --warm-up, and does not go with --beside")
    copies = copies_of(replication, sync=sync)
    if beside is not None:
        both = BesideOptions(
            shards=shards, beside=beside, turns=turns, latency_rate=rate, warm_up_s=warm_up,
            latency_s=seconds, accounts=accounts, seed=seed, parent=folder,
            distributions=named(distribution, DISTRIBUTIONS), plan_limit=plan,
            max_offsets=max_offsets or 0, copies=copies,
        )  # fmt: skip
        deliver(lambda phases: run_beside(both, phases), show_beside, output, json=json)
        return
    options = others.LatencyOptions(
        shards=shards, latency_rate=rate, warm_up_s=warm_up, rise_s=rise, latency_s=seconds,
        accounts=accounts, transactions=transactions, repetitions=1,
        distributions=named(distribution, DISTRIBUTIONS),
        plan_limit=plan, max_offsets=_most(max_offsets, shards), copy_limit=copy_limit, seed=seed,
        parent=folder, copies=copies, gears=gears,
    )  # fmt: skip
    deliver(lambda phases: others.latency(options, phases), show, output, json=json)


@app.command()
def floor(
    *,
    rate: Rate = 500.0,
    warm_up: WarmUpSeconds = 60.0,
    seconds: CountedSeconds = 30.0,
    repetitions: Annotated[
        int, typer.Option("--repetitions", min=1, help="Turns; the medians count.")
    ] = 1,
    forms: Annotated[
        str, typer.Option("--forms", help=f"{', '.join(FORM_NAMES)}, a,b or all.")
    ] = "all",
    accounts: Accounts = 100_000,
    seed: Seed = 1,
    folder: Folder = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Latency of queries that do almost nothing, beside the pipeline's: what each part costs."""
    options = FloorOptions(
        rate=rate, warm_up_s=warm_up, seconds=seconds, repetitions=repetitions, accounts=accounts,
        forms=named(forms, FORM_NAMES), seed=seed, parent=folder,
    )  # fmt: skip
    deliver(lambda phases: run_floor(options, phases), show_floor, output, json=json)


@app.command()
def recovery(
    *,
    turns: Annotated[int, typer.Option("--turns", min=1, help="Of each kind.")] = 10,
    rate: Rate = 50.0,
    shards: Shards = 1,
    gear: Gear = "micro-batch",
    kinds: Annotated[
        str,
        typer.Option(
            "--kinds",
            help=f"{', '.join(RECOVERY_KINDS)}; with --gear both {', '.join(GEAR_KINDS)}; all.",
        ),
    ] = "all",
    settle: Annotated[
        float, typer.Option("--settle", min=0, help="Seconds of load before each turn.")
    ] = 5.0,
    folder: Folder = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """How long clients get no verdict: after SIGKILL, with a standby, in a planned hand-over."""
    gears = has_gears(gear, shards)
    options = RecoveryOptions(
        turns=turns, rate=rate, settle_s=settle, shards=shards, gears=gears,
        kinds=named(kinds, GEAR_KINDS if gears else RECOVERY_KINDS), parent=folder,
    )  # fmt: skip
    deliver(lambda phases: run_recovery(options, phases), show_recovery, output, json=json)


@app.command()
def scale(
    *,
    shards: Annotated[
        str, typer.Option("--shards", help="Numbers of shards to compare.")
    ] = "1,2,4,8",
    transactions: Annotated[
        int, typer.Option("--transactions", min=1, help="Transactions of a batch.")
    ] = 200_000,
    batches: Annotated[
        int, typer.Option("--batches", min=1, help="Batches of our stages; the least counts.")
    ] = 5,
    accounts: Accounts = 100_000,
    distribution: Distribution = "uniform",
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="Also run pipelines: what JVM and broker take.")
    ] = False,
    backlog: Annotated[
        int | None,
        typer.Option("--backlog", min=1, help="Of a pipeline (default: two full micro-batches)."),
    ] = None,
    seed: Seed = 1,
    folder: Folder = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Processor time of a transfer by stage, for several numbers of shards, and what follows."""
    options = ScaleOptions(
        shards=tuple(numbers(shards, "numbers of shards like 1,2,4,8", 1)), batches=batches,
        transactions=transactions, accounts=accounts, pipeline=pipeline, seed=seed, parent=folder,
        backlog=backlog, distribution=named(distribution, DISTRIBUTIONS)[0],
    )  # fmt: skip
    deliver(lambda phases: run_scale(options, phases), show_scale, output, json=json)


@app.command()
def memory(
    *,
    small: Annotated[bool, typer.Option("--small", help="Of `up --small`.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=2, help="Of load.")] = 120.0,
    rate: Rate = 500.0,
    rest: Annotated[float, typer.Option("--rest", min=1, help="Seconds without load.")] = 60.0,
    repetitions: Repetitions = 3,
    folder: Folder = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Memory of all processes of a database: after its start, under load, and idle."""
    options = IdleOptions(
        load=Stage(seconds=seconds, rate=rate), idle_s=rest, repetitions=repetitions,
        options=("--small",) if small else ("--no-small",), parent=folder,
    )  # fmt: skip
    deliver(lambda phases: run_idle(options, phases), show_idle, output, json=json)


@app.command()
def shifting(
    *,
    cycles: Annotated[int, typer.Option("--cycles", min=1, help="Up and down, so often.")] = 10,
    forms: Annotated[
        str, typer.Option("--forms", help=f"Of the cycles, by turns: {', '.join(FORMS)} or all.")
    ] = "all",
    levels: Annotated[
        str, typer.Option("--levels", help="Transactions/s of the plateaus.")
    ] = ",".join(f"{level:.0f}" for level in LEVELS),
    plateau: Annotated[
        float, typer.Option("--plateau", min=0.5, help="Seconds from one plateau to the next.")
    ] = 4.0,
    rest: Annotated[
        float, typer.Option("--rest", min=0.5, help="Seconds without load between cycles.")
    ] = 15.0,
    warm_up: WarmUpSeconds = 20.0,
    accounts: Accounts = 10_000,
    quick: Annotated[bool, typer.Option("--quick", help="Two cycles.")] = False,
    seed: Seed = 1,
    folder: Folder = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Latency while the load comes and goes and the gears shift; every result is awaited."""
    options = ShiftingOptions(
        cycles=2 if quick else cycles, forms=named(forms, FORMS), plateau_s=plateau, rest_s=rest,
        levels=tuple(float(n) for n in numbers(levels, "rates like 500,20000", 1)),
        warm_up_s=warm_up, accounts=accounts, seed=seed, parent=folder,
        warm_up_transactions=200_000,
    )  # fmt: skip
    deliver(lambda phases: run_shifting(options, phases), show_shifting, output, json=json)


@app.command()
def sql(
    *,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of the table.")] = 1_000,
    statements: Annotated[
        int, typer.Option("--statements", min=1, help="Statements of a batch.")
    ] = 200,
    batches: Annotated[
        int, typer.Option("--batches", min=1, help="Batches; the least counts.")
    ] = 5,
    output: Output = None,
    json: Json = False,
) -> None:
    """Processor time of statements on SQL tables in memory, beside SQLite's."""
    options = SqlOptions(rows=rows, statements=statements, batches=batches)
    deliver(lambda phases: run_sql(options, phases), show_sql, output, json=json)


@app.command()
def soak(
    *,
    shards: Shards = 1,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long.")] = 1800.0,
    load: Annotated[float, typer.Option("--load", min=0.01, help="Times the capacity.")] = 0.5,
    interval: Annotated[
        float | None,
        typer.Option("--interval", min=1, help="Seconds of one row (default: 1 % of all, 10-60)."),
    ] = None,
    accounts: Accounts = 100_000,
    folder: Folder = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Half the capacity for 30 minutes: the first minute against the last (bank --sustain).

    With --output, FILE.part holds the rows so far, should the run be ended early.
    """
    options = bank_runs.BankOptions(
        shards=shards, accounts=accounts, distributions=("uniform",), copy_limit=False,
        parent=folder,
    )  # fmt: skip
    every = interval or min(60.0, max(10.0, seconds / 100))
    kept = output.with_name(f"{output.name}.part") if output else None
    deliver(
        lambda phases: bank_runs.sustained(options, seconds, load, phases, every, kept),
        show, output, json=json,
    )  # fmt: skip
    if kept is not None:
        kept.unlink(missing_ok=True)


@app.command()
def serving(
    *,
    shards: Shards = 1,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long.")] = 300.0,
    load: Annotated[float, typer.Option("--load", min=0.01, help="Times the capacity.")] = 0.8,
    quiet: Annotated[
        float, typer.Option("--quiet", min=1, help="Seconds of reads without transfers, before.")
    ] = 60.0,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Strong reads/s.")] = 50.0,
    transactions: Transactions = 600_000,
    repetitions: Repetitions = 3,
    accounts: Accounts = 100_000,
    max_offsets: MaxOffsets = None,
    seed: Seed = 1,
    folder: Folder = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """A facade on a pipeline under load: the age of its snapshots, and strong reads through it."""
    options = ServingOptions(
        shards=shards, accounts=accounts, transactions=transactions, repetitions=repetitions,
        warm_up_transactions=transactions, distributions=("uniform",), copy_limit=False,
        load=load, seconds=seconds, quiet_s=quiet, read_rate=rate, seed=seed, parent=folder,
        max_offsets=_most(max_offsets, shards),
    )  # fmt: skip
    deliver(lambda phases: run_serving(options, phases), show, output, json=json)


@app.command()
def rest(
    *,
    keys: Annotated[
        int | None, typer.Option("--keys", min=KEYS_MIN, help="Keys (default: 100000).")
    ] = None,
    value_bytes: Annotated[
        int, typer.Option("--value-bytes", min=10, max=100_000, help="Size of a value.")
    ] = 100,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.5, help="Of one case of reads (default: 8).")
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", min=1, help="Reads/s, and writes/s, of the mixed run.")
    ] = 200.0,
    pairs: Annotated[
        int | None,
        typer.Option("--pairs", min=1, help="Turns, alone and beside writes (default: 3)."),
    ] = None,
    cases: Annotated[
        bool, typer.Option("--cases/--no-cases", help="Measure more than the mixed run.")
    ] = True,
    quick: Annotated[bool, typer.Option("--quick", help="A first look in two minutes.")] = False,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Compare with PostgreSQL and a constant.")
    ] = True,
    gear: Gear = "both",
    seed: Seed = 1,
    folder: Folder = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Reads and writes through HTTP, beside PostgreSQL and a constant behind the same server."""
    deliver(
        lambda phases: run_rest(
            RestOptions.sized(
                quick=quick, keys=keys, seconds=seconds, value_bytes=value_bytes, mixed_rate=rate,
                pairs=pairs, cases=cases, peers=peers, gears=has_gears(gear, 1), seed=seed,
                parent=folder,
            ),
            phases,
        ),
        show_rest, output, json=json,
    )  # fmt: skip
