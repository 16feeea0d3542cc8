"""`streamydb bench`: the command line of the measurements."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from streamydb.bench import bank as bank_runs
from streamydb.bench import others
from streamydb.bench.ending import ending_in_order
from streamydb.bench.report import show
from streamydb.bench.rest.cases import KEYS_MIN
from streamydb.bench.rest.report import show as show_rest
from streamydb.bench.rest.run import RestOptions
from streamydb.bench.rest.run import rest as run_rest
from streamydb.bench.workload import DISTRIBUTIONS
from streamydb.cli.phases import Phases
from streamydb.limits import max_offsets as max_offsets_of

__all__ = ["app", "bank", "distributions", "latency", "rest", "soak", "ycsb"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Measure on a fresh broker and pipeline of its own, which end with the measurement.",
)

Shards = Annotated[int, typer.Option("--shards", min=1, max=64, help="Slices of the keys.")]
Transactions = Annotated[
    int, typer.Option("--transactions", min=1, help="Transactions of one measured backlog.")
]
WarmUp = Annotated[
    int | None,
    typer.Option("--warm-up-transactions", min=2, help="Before it; else as many as measured."),
]
Repetitions = Annotated[int, typer.Option("--repetitions", min=1, help="The median counts.")]
Accounts = Annotated[int, typer.Option("--accounts", min=2, help="Accounts of the bank.")]
Distribution = Annotated[
    str, typer.Option("--distribution", help=f"{', '.join(DISTRIBUTIONS)}, a,b or all.")
]
Plan = Annotated[
    int | None, typer.Option("--plan", min=1, help="Most transactions in one plan.")
]
MaxOffsets = Annotated[
    int | None,
    typer.Option("--max-offsets", min=1, help="Most transactions read in one micro-batch."),
]
Rate = Annotated[float, typer.Option("--rate", min=1, help="Transactions/s for the latency.")]
LatencySeconds = Annotated[
    float, typer.Option("--seconds", min=0, help="Seconds that latency is measured; 0: not.")
]
Theta = Annotated[float, typer.Option("--theta", min=0, help="Exponent of the Zipf distribution.")]
CopyLimit = Annotated[bool, typer.Option("--copy-limit/--no-copy-limit", help="Measure it too.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the transactions.")]
Folder = Annotated[
    Path | None, typer.Option("--folder", help="Where to put the run's folder (default: temporary)")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Also write the JSON object to this file.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def distributions(text: str) -> tuple[str, ...]:
    """The distributions that an option names.

    Raises:
        BadParameter: one of them is unknown.
    """
    names = DISTRIBUTIONS if text == "all" else tuple(text.split(","))
    for name in names:
        if name not in DISTRIBUTIONS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(DISTRIBUTIONS)}, all")
    return names


def _most(given: int | None, shards: int) -> int:
    return given or max_offsets_of(shards)


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 2:
        raise typer.BadParameter(f"{text!r} is not a list of numbers of accounts like 1000,100000")
    return sizes


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
    sustain: Annotated[
        float | None, typer.Option("--sustain", min=1, help="Offer a constant load for so long.")
    ] = None,
    load: Annotated[
        float, typer.Option("--load", min=0.01, help="That load, as a multiple of the capacity.")
    ] = 1.5,
    interval: Annotated[
        float, typer.Option("--interval", min=1, help="Seconds of one row of its report.")
    ] = 10.0,
    keys_series: Annotated[
        str | None,
        typer.Option("--keys-series", help="Cost of a transfer at each size: 1000,100000,3000000."),
    ] = None,
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
        distributions=distributions(distribution), max_offsets=_most(max_offsets, shards),
        latency_rate=rate, latency_s=seconds, copy_limit=copy_limit, seed=seed, parent=folder,
    )  # fmt: skip
    if keys_series is not None:
        sizes = _sizes(keys_series)
        _run(lambda phases: bank_runs.keys_series(options, sizes, phases), output, json=json)
    elif sustain is not None:
        _run(
            lambda phases: bank_runs.sustained(options, sustain, load, phases, interval),
            output, json=json,
        )  # fmt: skip
    else:
        _run(lambda phases: bank_runs.bank(options, phases), output, json=json)


@app.command()
def ycsb(
    *,
    shards: Shards = 1,
    transactions: Transactions = 300_000,
    warm_up_transactions: WarmUp = None,
    repetitions: Repetitions = 3,
    keys: Annotated[int, typer.Option("--keys", min=1, help="Keys of the database.")] = 100_000,
    operations: Annotated[
        int, typer.Option("--operations", min=1, help="Different keys a transaction touches.")
    ] = 4,
    read_share: Annotated[
        float, typer.Option("--read-share", min=0, max=1, help="Share of them only read.")
    ] = 0.5,
    theta: Theta = 0.99,
    value_bytes: Annotated[
        int, typer.Option("--value-bytes", min=13, max=100_000, help="Size of a value.")
    ] = 100,
    plan: Plan = None,
    max_offsets: MaxOffsets = None,
    rate: Rate = 500.0,
    seconds: LatencySeconds = 20.0,
    copy_limit: CopyLimit = True,
    seed: Seed = 1,
    folder: Folder = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Transactions of several reads and puts on keys drawn by Zipf (YCSB)."""
    if operations > keys:
        raise typer.BadParameter(f"{operations} operations on different keys need as many keys")
    options = others.YcsbOptions(
        shards=shards, transactions=transactions, repetitions=repetitions, keys=keys,
        warm_up_transactions=warm_up_transactions or transactions, operations=operations,
        read_share=read_share, theta=theta, value_bytes=value_bytes, plan_limit=plan,
        max_offsets=_most(max_offsets, shards), latency_rate=rate, latency_s=seconds,
        copy_limit=copy_limit,
        seed=seed, parent=folder,
    )  # fmt: skip
    _run(lambda phases: others.ycsb(options, phases), output, json=json)


@app.command()
def latency(
    *,
    shards: Shards = 1,
    rate: Rate = 500.0,
    warm_up: Annotated[
        float, typer.Option("--warm-up", min=0, help="Seconds of load before it counts.")
    ] = 120.0,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="Seconds that count.")
    ] = 60.0,
    accounts: Accounts = 100_000,
    distribution: Distribution = "uniform",
    transactions: Transactions = 200_000,
    plan: Plan = None,
    max_offsets: MaxOffsets = None,
    copy_limit: CopyLimit = True,
    seed: Seed = 1,
    folder: Folder = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Latency of transfers that are due at a fixed rate, from the due time to the result read.

    A backlog and the copy limit are measured afterwards.
    """
    options = others.LatencyOptions(
        shards=shards, latency_rate=rate, warm_up_s=warm_up, latency_s=seconds, accounts=accounts,
        distributions=distributions(distribution), transactions=transactions, repetitions=1,
        plan_limit=plan, max_offsets=_most(max_offsets, shards), copy_limit=copy_limit, seed=seed,
        parent=folder,
    )  # fmt: skip
    _run(lambda phases: others.latency(options, phases), output, json=json)


@app.command()
def soak(
    *,
    shards: Shards = 1,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long.")] = 1800.0,
    load: Annotated[float, typer.Option("--load", min=0.01, help="Times the capacity.")] = 0.5,
    accounts: Accounts = 100_000,
    output: Output = None,
    json: Json = False,
) -> None:
    """Half the capacity for 30 minutes: the first minute against the last (bank --sustain)."""
    options = bank_runs.BankOptions(shards=shards, accounts=accounts, distributions=("uniform",))
    _run(lambda phases: bank_runs.sustained(options, seconds, load, phases), output, json=json)


@app.command()
def rest(
    *,
    keys: Annotated[
        int | None, typer.Option("--keys", min=KEYS_MIN, help="Keys [default: 100000].")
    ] = None,
    value_bytes: Annotated[
        int, typer.Option("--value-bytes", min=10, max=100_000, help="Size of a value.")
    ] = 100,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.5, help="Of one case of reads [default: 8].")
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", min=1, help="Reads/s, and writes/s, of the mixed run.")
    ] = 200.0,
    quick: Annotated[bool, typer.Option("--quick", help="A first look in two minutes.")] = False,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Compare with PostgreSQL and a constant.")
    ] = True,
    seed: Seed = 1,
    folder: Folder = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Reads and writes through HTTP, beside PostgreSQL and a constant behind the same server."""
    _run(
        lambda phases: run_rest(
            RestOptions.sized(
                quick=quick, keys=keys, seconds=seconds, value_bytes=value_bytes, mixed_rate=rate,
                peers=peers, seed=seed, parent=folder,
            ),
            phases,
        ),
        output, json=json,
    )  # fmt: skip


def _run(
    measure: Callable[[Phases], dict[str, Any]],
    output: Path | None,
    *,
    json: bool,
) -> None:
    """Measure, then print."""
    with ending_in_order():
        answer = measure(Phases())
    raw = msgspec.json.encode(answer)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_bytes(msgspec.json.format(raw) + b"\n")
    if json:
        sys.stdout.write(raw.decode() + "\n")
        sys.stdout.flush()
    else:
        shown = show_rest if answer["benchmark"] == "rest" else show
        shown(answer, Console(highlight=False))
