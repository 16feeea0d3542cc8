"""The leaderboard maintenance as a workflow; and `streamydb bench voter`, which measures both ways.

A vote is taken in by one transaction, and settled by a follow-up that the query appends to the log.
Votes must be settled in the order in which they came (S-Store's stream order), each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from bench.literature.driver import answer, session
from bench.literature.judging import Answered, Invariant, Judges, invariant, number_of
from bench.literature.voter import (
    WINDOW,
    Voter,
    VoterJudge,
    VoterOptions,
    beginning,
    contestants,
    remaining,
)
from streamydb.cli.phases import Phases

__all__ = ["FlowJudge", "FlowVoter", "flow_beginning", "voter"]

MODULE: Final = "voterflow"
_COUNTS: Final = f"$flows/{MODULE}"
_FOLLOW_UP: Final = "$flow/"


class FlowVoter(Voter):
    """Votes that enter the workflow."""

    changes_each = 6.0
    follow_ups_each = 1

    def payload(self, number: int, phone: int, who: str) -> bytes:
        """The transaction that takes a vote in."""
        args = {"phone": phone, "contestant": who}
        call = {"procedure": f"{MODULE}.cast", "args": args, "keys": [_COUNTS]}
        return msgspec.json.encode({"id": f"t{number}", "call": call})


def flow_beginning(options: VoterOptions, first: int) -> list[bytes]:
    """The transaction that opens the workflow's show."""
    args = {"contestants": contestants(options.contestants), "rules": options.rules()}
    call = {"procedure": f"{MODULE}.begin", "args": args, "keys": ["flow/show"]}
    return [msgspec.json.encode({"id": f"t{first}", "call": call})]


class FlowJudge(VoterJudge):
    """Runs the votes serially in the order in which they were taken in."""

    suffix = " (workflow)"
    procedure = f"{MODULE}.cast"

    def __init__(self, options: VoterOptions) -> None:
        """Nothing is known."""
        super().__init__(options)
        self._cast: dict[int, int] = {}
        self._settled: list[tuple[int, int, Any]] = []

    def answered(self, result: Answered) -> None:
        """Keep when a vote was taken in, or what its settlement told."""
        number = number_of(result.id)
        if number in self._asked and result.committed:
            self._cast[result.seq] = number
        elif result.id is not None and result.id.startswith(_FOLLOW_UP):
            emitter = int(result.id.split("/")[1])
            told = result.returned[0] if result.committed else f"{result.code} {result.reason}"
            self._settled.append((result.seq, emitter, told))

    def invariants(self) -> list[Invariant]:
        """Settlements, then as for votes that are one transaction."""
        order = invariant(
            "each vote is settled once, in the order in which votes came", len(self._cast),
            self._out_of_order(),
        )  # fmt: skip
        self._told = [
            (emitter, self._cast[emitter], told)
            for _, emitter, told in self._settled if emitter in self._cast
        ]  # fmt: skip
        return [order, *super().invariants()]

    def _out_of_order(self) -> Iterator[str]:
        emitters = [emitter for _, emitter, _ in sorted(self._settled, key=lambda row: row[0])]
        came = sorted(self._cast)
        if len(emitters) != len(came):
            yield f"{len(came):,} votes came, {len(emitters):,} were settled"
        for settled, expected in zip(emitters, came, strict=False):
            if settled != expected:
                yield f"the vote of seq {settled} was settled when that of {expected} was due"
        counts = self._values.get(_COUNTS)
        if counts != {"done": len(came), "made": len(came)}:
            yield f"{_COUNTS} is {counts}, after {len(came):,} votes"

    def _value(self, key: str) -> Any:
        return self._values.get(f"flow/{key}")

    def _window(self) -> Any:
        return (self._values.get(f"$windows/{MODULE}.last") or {}).get("active")


def voter(options: VoterOptions, phases: Phases) -> dict[str, Any]:
    """Measure votes, each one transaction, and through a workflow; compare with serial runs.

    Raises:
        BenchError: something failed.
    """
    cases = {"one transaction": Voter(options), "workflow": FlowVoter(options)}
    plain, flow = VoterJudge(options), FlowJudge(options)
    with session(options, phases) as measured:
        for module in ("voter", MODULE):
            measured.deploy(module)
        first = measured.run.appender.appended
        shows = [*beginning(options, first), *flow_beginning(options, first + 1)]
        measured.append(shows, "Opening the shows")
        measured.throughput(cases)
        measured.latency(cases["one transaction"])
        for name, workload in cases.items():
            cast = sum(end - start for start, end in measured.ranges[name])
            measured.feed(workload, remaining(options, cast), f"Voting until one is left, {name}")
        found = measured.prove(Judges([plain, flow]))
        parameters = {
            "contestants": options.contestants, "phones": options.phones, "window": WINDOW,
            **options.rules(),
        }  # fmt: skip
        return {
            **answer("voter", measured, found, parameters),
            "winner": plain.show.winner(),
            "workflow_winner": flow.show.winner(),
            "removed": plain.show.removed,
            "recorded": plain.show.recorded,
            "refused": dict(plain.reasons),
        }
