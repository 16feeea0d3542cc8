"""S-Store's leaderboard maintenance: who wins must be who wins in a serial run.

Meehan, Tatbul, Zdonik et al.: "S-Store: Streaming Meets Transaction Processing", PVLDB 8(13),
2015. Viewers vote; each vote is validated and recorded; boards show the best, the worst, and whom
the last votes were for; after so many votes the lowest contestant is removed, and the votes for
them go back to those who cast them; in the end one is left. It matters in which order all that is
done: a vote too many or too few before a removal, and somebody else wins.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np

from bench.literature.driver import StudyOptions
from bench.literature.judging import (
    Answered,
    Asked,
    Base,
    Changed,
    Invariant,
    LastValues,
    invariant,
    number_of,
)

__all__ = [
    "Show", "Voter", "VoterJudge", "VoterOptions", "beginning", "contestants", "remaining",
]  # fmt: skip

NOBODY: Final = "nobody"
"""Whom a vote in a hundred is for; it is invalid."""

WINDOW: Final = 100
"""Votes that the trending board looks at."""

_KNOWS_SHARE: Final = 0.9
_NOBODY_SHARE: Final = 0.01
_PLACES: Final = 3
_POPULARITY: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterOptions(StudyOptions):
    """What to measure; see `streamydb bench voter --help`."""

    contestants: int = 12
    every: int = 20_000
    per_phone: int = 1
    phones: int = 1_000_000

    def rules(self) -> dict[str, int]:
        """What the show is told when it begins."""
        return {"every": self.every, "per_phone": self.per_phone}


def contestants(count: int) -> list[str]:
    """Their names, in the order of the alphabet."""
    return [f"contestant {number:02d}" for number in range(1, count + 1)]


class Voter:
    """Votes of random phones; some contestants are liked better than others.

    Most viewers know who has been removed, and vote for somebody else.
    """

    changes_each = 4.0

    def __init__(self, options: VoterOptions) -> None:
        """Prepare the votes; who is liked follows from the seed."""
        self._rng = np.random.default_rng(options.seed)
        self._options, self._show = options, Show(options)
        self._names = np.array([*contestants(options.contestants), NOBODY])
        ranks = self._rng.permutation(options.contestants) + 1.0
        liked = ranks**-_POPULARITY
        self._weights = np.append(liked / liked.sum() * (1 - _NOBODY_SHARE), _NOBODY_SHARE)

    def payloads(self, first: int, count: int) -> list[bytes]:
        """Make votes; see `Workload.payloads`."""
        phones = self._rng.integers(0, self._options.phones, count).tolist()
        chosen = self._rng.choice(self._names, count, p=self._weights).tolist()
        chances = self._rng.random((count, 2)).tolist()
        rows = zip(phones, chosen, chances, strict=True)
        votes = [(phone, self._cast(phone, who, *chance)) for phone, who, chance in rows]
        return [self.payload(number, *vote) for number, vote in enumerate(votes, first)]

    def _cast(self, phone: int, who: str, knows: float, place: float) -> str:
        """Whom a viewer votes for who may know that their favourite is out."""
        running = self._show.votes
        if who != NOBODY and who not in running and knows < _KNOWS_SHARE:
            who = list(running)[int(place * len(running))]
        self._show.vote(phone, who)
        return who

    def payload(self, number: int, phone: int, who: str) -> bytes:
        """The transaction of a vote."""
        keys = [f"phone/{phone}", "show", "trending", "board"]
        args = {"phone": phone, "contestant": who}
        call = {"procedure": "voter.vote", "args": args, "keys": keys}
        return msgspec.json.encode({"id": f"t{number}", "call": call})


def beginning(options: VoterOptions, first: int) -> list[bytes]:
    """The transaction that opens the show."""
    args = {"contestants": contestants(options.contestants), "rules": options.rules()}
    call = {"procedure": "voter.begin", "args": args, "keys": ["show", "trending"]}
    return [msgspec.json.encode({"id": f"t{first}", "call": call})]


@dataclass(slots=True)
class Show:
    """The show once more, vote by vote, in plain Python: what the database must agree with."""

    options: VoterOptions
    votes: Counter[str] = field(default_factory=Counter)
    phones: dict[int, list[str]] = field(default_factory=dict)
    recorded: int = 0
    removed: list[str] = field(default_factory=list)
    last: deque[str] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Nobody has voted."""
        self.votes.update(dict.fromkeys(contestants(self.options.contestants), 0))
        self.last = deque(maxlen=WINDOW)

    def vote(self, phone: int, who: str) -> tuple[str | None, str | None]:
        """Vote; why the vote does not count, and who is removed after it."""
        if len(self.votes) == 1:
            return "the show is over", None
        if who not in self.votes:
            return "not in the running", None
        mine = self.phones.setdefault(phone, [])
        if sum(each in self.votes for each in mine) >= self.options.per_phone:
            return "this phone has voted", None
        mine.append(who)
        self.votes[who] += 1
        self.last.append(who)
        self.recorded += 1
        if self.recorded % self.options.every:
            return None, None
        lowest = min(sorted(self.votes), key=self.votes.__getitem__)
        del self.votes[lowest]
        self.removed.append(lowest)
        return None, lowest

    def board(self) -> dict[str, list[list[Any]]]:
        """What is shown after the last vote."""
        ranked = _ranked(self.votes)
        return {
            "top": ranked[:_PLACES], "bottom": ranked[-_PLACES:],
            "trending": _ranked(Counter(w for w in self.last if w in self.votes))[:_PLACES],
        }  # fmt: skip

    def winner(self) -> str | None:
        """Who is left, when only one is."""
        return next(iter(self.votes)) if len(self.votes) == 1 else None


def _ranked(votes: Counter[str]) -> list[list[Any]]:
    return [[who, votes[who]] for who in sorted(votes, key=lambda who: (-votes[who], who))]


class VoterJudge(Base):
    """Runs the votes serially, in the order of their seqs, and compares each verdict and the end.

    Attributes:
        show: the serial run, once `invariants` has been called.
        reasons: how many votes did not count, by the reason.
    """

    needs_log = True
    suffix = ""
    """Of the invariants' names."""
    procedure = "voter.vote"
    """What a vote calls."""

    def __init__(self, options: VoterOptions) -> None:
        """Nothing is known."""
        self.show = Show(options)
        self.reasons: Counter[str] = Counter()
        self._asked: dict[int, tuple[int, str]] = {}
        self._told: list[tuple[int, int, Any]] = []
        self._values = LastValues()

    def asked(self, transaction: Asked) -> None:
        """Keep a vote."""
        if transaction.call.get("procedure") == self.procedure:
            args = transaction.call["args"]
            self._asked[number_of(transaction.id)] = args["phone"], args["contestant"]

    def answered(self, result: Answered) -> None:
        """Keep a verdict on a vote."""
        number = number_of(result.id)
        if number in self._asked:
            reason = result.reason or result.code or result.status
            told = result.returned if result.committed else reason
            self._told.append((result.seq, number, told))

    def changed(self, change: Changed) -> None:
        """Take over a value."""
        self._values.take(change)

    def invariants(self) -> list[Invariant]:
        """Verdicts, the boards, and the winner."""
        wrong = list(self._serial_run())
        show, end = self.show, self._value("show") or {}
        left = end.get("votes", {})
        differing = [
            f"{what} is {found}, not {expected}"
            for what, found, expected in (
                ("the count of votes", left, dict(show.votes)),
                ("the order of removals", end.get("removed"), show.removed),
                ("the number of recorded votes", end.get("recorded"), show.recorded),
                ("the window", self._window(), list(show.last)),
                ("the board", self._value("board"), show.board()),
            )
            if found != expected
        ]
        winner = next(iter(left)) if len(left) == 1 else None
        return [
            self._named("each vote counts as in a serial run", len(self._told), wrong),
            self._named("boards, window and removals are those of a serial run", 5, differing),
            self._named("the winner is that of a serial run", 1, _other_winner(winner, show)),
        ]

    def _named(self, name: str, checked: int, problems: list[str]) -> Invariant:
        return invariant(name + self.suffix, checked, problems)

    def _value(self, key: str) -> Any:
        return self._values.get(key)

    def _window(self) -> Any:
        return (self._values.get("trending") or {}).get("last")

    def _serial_run(self) -> Iterator[str]:
        for seq, number, told in sorted(self._told, key=lambda row: row[0]):
            refused, removed = self.show.vote(*self._asked[number])
            expected = refused or {"recorded": self.show.recorded, "removed": removed}
            if isinstance(told, str):
                self.reasons[told] += 1
            if told != expected:
                yield f"t{number} (seq {seq}): {told}, not {expected}"


def _other_winner(winner: str | None, show: Show) -> list[str]:
    return [] if winner == show.winner() else [f"{winner} has won, not {show.winner()}"]


def remaining(options: VoterOptions, cast: int) -> int:
    """Votes that are still needed, half as many again as are recorded in a whole show."""
    return max(0, int(1.5 * (options.contestants - 1) * options.every) - cast)
