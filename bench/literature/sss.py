"""The mix of SSS: updates of two keys and read-only transactions of many, in a closed loop.

Javidi Kishi, Peluso, Korth, Palmieri: "SSS: Scalable Key-Value Store with External Consistent and
Abort-free Read-only Transactions", ICDCS 2019 (arXiv 1901.03772). Read-only transactions go through
the facade to the read model: they never abort, and take no lock. Values are lists of the updates
that were made, so that the checkers of `histories` can tell from what was read in
which order the transactions must have been, and whether real time contradicts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bench.literature.driver import Session, StudyOptions, answer, session
from bench.literature.driver import share as share_of
from bench.literature.judging import Base, Changed, Invariant, LastValues, invariant
from bench.literature.players import Play, Played, latency_facts, playing
from bench.rest.servers import Server, facade
from bench.workload import Zipf, funding
from histories import AppendOperation, History, Operation, ReadOperation
from histories.answers import call_of, told
from histories.serializability import check_lists
from streamydb.cli.phases import Phases

__all__ = ["SssJudge", "SssOptions", "mix", "operation_of", "sss"]

Request = AppendOperation | ReadOperation

UPDATED: Final = 2
"""Keys of an update."""

NO_ABORT: Final = "no transaction aborts, is refused, or goes without an answer"

READ_SIZES: Final = (2, 16)
"""Fewest and most keys of a read-only transaction."""

SHARES: Final = (0.2, 0.5, 0.8)
"""Shares of read-only transactions."""

_MOST_PER_S: Final = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SssOptions(StudyOptions):
    """What to measure; see `streamydb bench sss --help`."""

    keys: int = 5_000
    theta: float = 0.0
    clients: int = 100
    seconds: float = 20.0
    warm_up_s: float = 20.0


def mix(options: SssOptions, share: float, count: int, name: str) -> list[Request]:
    """Requests of which a share is read-only; updates have ids that begin with `name`."""
    rng = np.random.default_rng([options.seed, round(100 * share), *name.encode()])
    zipf = Zipf(options.keys, options.theta, rng)
    read_only = (rng.random(count) < share).tolist()
    sizes = rng.integers(READ_SIZES[0], READ_SIZES[1] + 1, count).tolist()
    drawn = iter(_endless(zipf))
    return [
        ReadOperation(_different(drawn, size)) if only else _update(f"{name}{n}", drawn)
        for n, (only, size) in enumerate(zip(read_only, sizes, strict=True))
    ]


def _endless(zipf: Zipf) -> Iterator[str]:
    while True:
        yield from (f"k/{number}" for number in zipf.draw(10_000).tolist())


def _different(drawn: Iterator[str], size: int) -> list[str]:
    keys: dict[str, None] = {}
    while len(keys) < size:
        keys[next(drawn)] = None
    return list(keys)


def _update(name: str, drawn: Iterator[str]) -> AppendOperation:
    """Both keys are read and written."""
    keys = _different(drawn, UPDATED)
    return AppendOperation(name, {key: [name] for key in keys}, keys)


def operation_of(request: Request, played: Played) -> Operation:
    """What a client did and was told, for the checkers.

    Raises:
        ValueError: the answer is none that the documentation has.
    """
    found = told(request, played.status, {}, played.body)
    known = found.outcome != "unknown"
    return Operation(
        client=played.client, session=0, invoked_ns=played.began_ns, request=request,
        outcome=found.outcome, returned_ns=played.ended_ns if known else None,
        answer=found.answer,
    )  # fmt: skip


class SssJudge(Base):
    """External consistency, from what clients saw; nothing lost, from what is left."""

    def __init__(self) -> None:
        """Nothing is known."""
        self.operations: list[Operation] = []
        self._values = LastValues()

    def changed(self, change: Changed) -> None:
        """Take over a list."""
        self._values.take(change)

    def invariants(self) -> list[Invariant]:
        """Aborts, external consistency, and what is left."""
        aborted = [
            f"{type(each.request).__name__} of client {each.client}: {each.answer}"
            for each in self.operations if each.told is None or not each.told.committed
        ]  # fmt: skip
        violations = check_lists(History.of(self.operations))
        return [
            invariant(NO_ABORT, len(self.operations), aborted),
            invariant(
                "external consistency (strictly serializable as clients saw it)",
                len(self.operations), (f"[{v.anomaly}] {v.message}" for v in violations),
            ),
            invariant("every update is there once", len(self._values), self._lost()),
        ]  # fmt: skip

    def _lost(self) -> Iterator[str]:
        """Updates that are not at the end of the day in both of their lists, once."""
        for each in self.operations:
            if isinstance(each.request, AppendOperation) and each.told is not None:
                wanted = 1 if each.told.committed else 0
                for key in each.request.appends:
                    found = list(self._values.get(key) or ()).count(each.request.id)
                    if found != wanted:
                        yield f"{each.request.id} is {found} times in {key}, not {wanted}"


def sss(options: SssOptions, phases: Phases) -> dict[str, Any]:
    """Measure each mix; check what clients saw for external consistency.

    Raises:
        BenchError: something failed.
    """
    judge = SssJudge()
    with session(options, phases) as measured:
        first = measured.run.appender.appended
        empty = funding(0, options.keys, b"[]", first_id=first, key_prefix="k/")
        measured.append(empty, f"Loading {options.keys:,} keys")
        with facade(measured.run.engine, phases) as front:
            _play(options, measured, front, 0.5, "w", options.warm_up_s, judge)
            mixes = {
                f"{share:.0%} read-only": _play(
                    options, measured, front, share, f"s{number}-", options.seconds, judge
                )
                for number, share in enumerate(SHARES)
            }
        found = measured.prove(judge)
        parameters = {
            "keys": options.keys, "theta": options.theta, "clients": options.clients,
            "seconds": options.seconds, "updated_keys": UPDATED, "read_keys": list(READ_SIZES),
        }  # fmt: skip
        given = answer("sss", measured, found, parameters)
        del given["transactions"], given["repetitions"]  # of a backlog, which there is none of
        return {**given, **_totals(judge, found), "mixes": mixes,
                "txn_per_s": max(row["per_s"] for row in mixes.values()),
                "latency_ms": mixes["50% read-only"]["updates"]}  # fmt: skip


def _totals(judge: SssJudge, found: Sequence[Invariant]) -> dict[str, Any]:
    """What became of the transactions of clients."""
    aborts = next(each for each in found if each.name == NO_ABORT)
    return {
        "committed": len(judge.operations) - aborts.broken,
        "aborted": aborts.broken,
        "abort_rate": share_of(aborts.broken, aborts.checked),
    }


def _play(
    options: SssOptions, measured: Session, front: Server, share: float, name: str,
    seconds: float, judge: SssJudge,
) -> dict[str, Any]:  # fmt: skip
    """Run a mix; its figures. The judge hears of every operation."""
    with measured.run.phases.phase(f"{share:.0%} read-only, {options.clients} clients") as phase:
        requests = mix(options, share, int(_MOST_PER_S * max(1.0, seconds)), name)
        calls = [call_of(request) for request in requests]
        given = Play(
            port=front.port, clients=options.clients, seconds=seconds,
            requests=[(call.target, call.body) for call in calls],
        )  # fmt: skip
        with playing(given) as plays:
            played = plays.end()
        judge.operations += [operation_of(requests[each.request], each) for each in played]
        facts = latency_facts(played)
        phase.outcome = f"{facts['per_s']:,.0f} transactions/s"
        return {
            **facts,
            "reads": latency_facts(_only(played, requests, ReadOperation)),
            "updates": latency_facts(_only(played, requests, AppendOperation)),
        }


def _only(played: Sequence[Played], requests: Sequence[Request], kind: type) -> list[Played]:
    return [each for each in played if isinstance(requests[each.request], kind)]
