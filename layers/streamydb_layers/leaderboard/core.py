"""The flows of a leaderboard: transactions of plain updates, and reads at one snapshot.

Keys of a board, under its prefix:
- `member/<id>`: [score, bucket].
- `at/<path>/<id>`: present for each member; its version is when the member arrived there, its value
  the place among those that arrived in the same transaction.
- `order/<path>`: who arrived there, in order: a list for each transaction. In a database that was
  made from a snapshot, versions do not tell.
- `count/<beginning of a path>`: members below it.
- `arrivals/<score>`: how often this score was reached; it gives the bucket.

A transaction checks that the members are what was read, and that the bucket is the one of now;
counters are added to blindly, so members do not conflict with each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, Final

from streamydb.client import (
    BoundViolatedError,
    Builder,
    CheckFailedError,
    Committed,
    Entry,
    Snapshot,
)
from streamydb_layers.errors import InvalidArgumentError, MovedError, told_by
from streamydb_layers.leaderboard.ranks import (
    BUCKET_ARRIVALS,
    PATH_DIGITS,
    changed,
    check_score,
    children,
    path_of,
    score_digits,
    score_of,
    siblings_before,
)
from streamydb_layers.names import check_id, check_name
from streamydb_layers.steps import Build, Flow, commit, pause, read, scan

MEMBERS_MAX: Final = 100
"""Members that one transaction changes."""

STANDINGS_MAX: Final = 1_000
"""Members that one call shows."""

_ATTEMPTS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class Standing:
    """A member on the board.

    Attributes:
        member: who.
        score: the score.
        rank: 1 for the first; of equal scores, who arrived first is first.
    """

    member: str
    score: int
    rank: int


@dataclass(slots=True)
class _Plan:
    """The effect of a transaction on the board: where members were, and where they will be."""

    shown: Snapshot
    before: dict[str, tuple[int, int]]
    scores: dict[str, int | None]

    def moving(self) -> dict[str, int | None]:
        """The members whose score changes, with the new one."""
        return {
            member: score
            for member, score in self.scores.items()
            if score != self.before.get(member, (None, 0))[0]
        }


class BoardCore:
    """A board's flows."""

    def __init__(self, name: str) -> None:
        self.prefix = f"board/{check_name(name)}/"

    def add(self, member: str, by: int = 1, *, also: Build | None = None) -> Flow[int]:
        """Add to a member's score (0 for a new one), and return the new score."""
        scores = yield from self.change(add={member: by}, also=also)
        new = scores[member]
        return 0 if new is None else new

    def set(self, member: str, score: int, *, also: Build | None = None) -> Flow[None]:
        """Set a member's score; setting the score it has does not change when it arrived there."""
        yield from self.change(set={member: score}, also=also)

    def remove(self, *members: str, also: Build | None = None) -> Flow[None]:
        """Take members off the board, if they are on it."""
        yield from self.change(remove=members, also=also)

    def change(
        self,
        *,
        add: Mapping[str, int] | None = None,
        set: Mapping[str, int] | None = None,  # noqa: A002 - as the method
        remove: Iterable[str] = (),
        also: Build | None = None,
    ) -> Flow[dict[str, int | None]]:
        """Change several members in one transaction; return their scores, None if off the board.

        Args:
            add: member -> what to add to the score.
            set: member -> new score.
            remove: members to take off the board.
            also: adds more to the transaction.

        Raises:
            InvalidArgumentError: a member is named twice, or a score is none.
            MovedError: others changed the same members in every attempt.
            AbortedError: what `also` added does not hold.
        """
        removed = [remove] if isinstance(remove, str) else remove
        wanted = [*(add or {}), *(set or {}), *removed]
        if len({*wanted}) != len(wanted) or len(wanted) > MEMBERS_MAX:
            raise InvalidArgumentError(f"Change at most {MEMBERS_MAX} members, each once.")
        keys = {self._member(member): member for member in wanted}
        for attempt in range(_ATTEMPTS_MAX):
            plan = yield from self._plan(list(keys), keys, add or {}, set or {})
            try:
                yield from self._committed(plan, also)
            except (CheckFailedError, BoundViolatedError) as error:
                if not all(failed.key.startswith(self.prefix) for failed in error.failed):
                    raise
            else:
                return plan.scores
            yield from pause(attempt)
        raise MovedError(f"The members were changed by others in {_ATTEMPTS_MAX} attempts.")

    def top(self, count: int = 10) -> Flow[list[Standing]]:
        """The first members, best first."""
        return self.standings(1, count)

    def standings(self, first: int, count: int) -> Flow[list[Standing]]:
        """The members of ranks from ``first`` on, up to ``count``."""
        if first < 1 or not 1 <= count <= STANDINGS_MAX:
            raise InvalidArgumentError(f"Ranks begin at 1; up to {STANDINGS_MAX} members.")
        seq = (yield from read([self.prefix + "count/"])).seq
        return (yield from self._standings(first, count, seq))

    def rank(self, member: str) -> Flow[Standing | None]:
        """Return the standing of a member; None if it is not on the board."""
        key = self._member(member)
        shown = yield from read([key])
        if shown[key] is None:
            return None
        return (yield from self._standing(member, _place(key, shown[key]), shown.seq))

    def around(self, member: str, before: int = 2, after: int = 2) -> Flow[list[Standing]]:
        """A member with those just before and after it; empty if it is not on the board."""
        if before < 0 or after < 0 or before + after >= STANDINGS_MAX:
            raise InvalidArgumentError(f"Up to {STANDINGS_MAX} members.")
        key = self._member(member)
        shown = yield from read([key])
        if shown[key] is None:
            return []
        own = yield from self._standing(member, _place(key, shown[key]), shown.seq)
        first = max(1, own.rank - before)
        return (yield from self._standings(first, own.rank - first + 1 + after, shown.seq))

    def between(self, low: int, high: int, limit: int = 100) -> Flow[list[Standing]]:
        """Members with scores from ``low`` to ``high``, both included, best first."""
        if not 1 <= limit <= STANDINGS_MAX:
            raise InvalidArgumentError(f"Up to {STANDINGS_MAX} members.")
        start, end = score_digits(check_score(high)), score_digits(check_score(low))
        shown = yield from read([self._count(each) for each in siblings_before(start)])
        ahead = sum(count or 0 for count in shown.values())
        return (yield from self._walk(start, end + "~", ahead, 0, limit, shown.seq))

    def size(self) -> Flow[int]:
        """Return how many members there are."""
        shown = yield from read([self._count(each) for each in children("")])
        return sum(count or 0 for count in shown.values())

    def tidy(self) -> Flow[int]:
        """Delete counters that are of no use any more; return how many.

        Nothing depends on it: they are left behind by scores that nobody has.
        """
        prefix = self.prefix + "count/"
        seq = (yield from read([prefix])).seq
        counts = {entry.key: entry for entry in (yield from scan(prefix, seq))}
        unused: list[list[Entry]] = []
        for part in ("order/", "arrivals/"):  # a score that begins anew begins with no list
            for kept in (yield from scan(self.prefix + part, seq)):
                key = self._count(kept.key.removeprefix(self.prefix + part))
                count = counts.get(key, Entry(key, None, 0, 0))
                if not count.value:
                    unused.append([kept, count])
        # Counters last: those of scores are checked with the arrivals at them.
        unused += [[entry] for entry in counts.values() if entry.value == 0]
        deleted = 0
        for place in range(0, len(unused), MEMBERS_MAX):
            deleted += yield from self._tidied(unused[place : place + MEMBERS_MAX])
        return deleted

    def _plan(
        self,
        keys: list[str],
        members: Mapping[str, str],
        add: Mapping[str, int],
        to: Mapping[str, int],
    ) -> Flow[_Plan]:
        """Return the effect of the change on the state that this client knows; checks prove that it
        holds.
        """
        shown = yield from read(keys, consistency="session")
        before = {members[key]: _place(key, v) for key, v in shown.items() if v is not None}
        scores: dict[str, int | None] = dict.fromkeys(members.values())
        for member, by in add.items():
            scores[member] = check_score(before.get(member, (0, 0))[0] + check_score(by))
        scores |= {member: check_score(score) for member, score in to.items()}
        return _Plan(shown, before, scores)

    def _committed(self, plan: _Plan, also: Build | None) -> Flow[Committed]:
        """Commit a plan, in the buckets of now."""
        moving = plan.moving()
        arrivals: dict[str, list[str]] = {}
        for member, score in moving.items():
            if score is not None:
                arrivals.setdefault(self._arrivals(score), []).append(member)
        left = Counter(plan.before[member] for member in moving if member in plan.before)
        wanted = {*arrivals, *(key for place in left for key in self._about(place))}
        shown = (yield from read(wanted, consistency="session")) if wanted else plan.shown
        buckets = {key: (shown[key] or 0) // BUCKET_ARRIVALS for key in arrivals}
        emptied = self._emptied(left, shown)

        def build(atomic: Builder) -> None:
            for key in plan.shown:
                atomic.check(plan.shown.entries[key])
            for key, arrived in arrivals.items():
                low, more = buckets[key] * BUCKET_ARRIVALS, len(arrived)
                atomic.add(key, more, min=low + more, max=low + more + BUCKET_ARRIVALS - 1)
            self._move(atomic, plan, moving, buckets)
            for count in emptied:
                atomic.check(count).delete(self._order(count.key.removeprefix(self._count(""))))
            if also is not None:
                also(atomic)

        return (yield from commit(build))

    def _about(self, place: tuple[int, int]) -> tuple[str, str]:
        """The keys that tell how many are in a bucket, and whether more may arrive there."""
        return self._count(path_of(*place)), self._arrivals(place[0])

    def _emptied(self, left: Mapping[tuple[int, int], int], shown: Snapshot) -> list[Entry]:
        """The counters of buckets that are left by all, and at which nobody will arrive any more.

        Args:
            left: the score and the bucket that members leave, and how many do.
            shown: what is known about these buckets.
        """
        found = []
        for place, members in left.items():
            count, arrivals = self._about(place)
            closed = place[1] < (shown[arrivals] or 0) // BUCKET_ARRIVALS
            if closed and shown[count] == members:
                found.append(shown.entries[count])
        return found

    def _move(
        self,
        atomic: Builder,
        plan: _Plan,
        moving: Mapping[str, int | None],
        buckets: Mapping[str, int],
    ) -> None:
        """Take members from where they were, and put them where they will be."""
        counts: dict[str, int] = {}
        arrived: dict[str, list[str]] = {}
        for number, (member, score) in enumerate(moving.items()):
            if member in plan.before:
                old = path_of(*plan.before[member])
                atomic.delete(self._at(old, member))
                counts[old] = counts.get(old, 0) - 1
            if score is None:
                if member in plan.before:
                    atomic.delete(self._member(member))
                continue
            bucket = buckets[self._arrivals(score)]
            new = path_of(score, bucket)
            atomic.put(self._at(new, member), number)
            atomic.put(self._member(member), [score, bucket])
            counts[new] = counts.get(new, 0) + 1
            arrived.setdefault(new, []).append(member)
        for path, members in arrived.items():
            atomic.append(self._order(path), members)
        for beginning, by in changed(counts).items():
            atomic.add(self._count(beginning), by, min=0)

    def _standing(self, member: str, place: tuple[int, int], seq: int) -> Flow[Standing]:
        """The rank of a member that is there."""
        path = path_of(*place)
        before, order = [self._count(each) for each in siblings_before(path)], self._order(path)
        shown = yield from read([*before, order], at=seq)
        beside = self._in_order((yield from scan(self._at(path, ""), seq)), shown[order])
        ahead = [self._parts(entry)[1] for entry in beside].index(member)
        return Standing(member, place[0], sum(shown[key] or 0 for key in before) + ahead + 1)

    def _standings(self, first: int, count: int, seq: int) -> Flow[list[Standing]]:
        """Members by rank, at a snapshot."""
        start, left = "", first - 1
        while left and len(start) < PATH_DIGITS:
            shown = yield from read([self._count(each) for each in children(start)], at=seq)
            for beginning in children(start):
                below = shown[self._count(beginning)] or 0
                if left < below:
                    start = beginning
                    break
                left -= below
            else:
                return []
        return (yield from self._walk(start, "~", first - 1 - left, left, count, seq))

    def _walk(
        self, start: str, end: str, ahead: int, skip: int, count: int, seq: int
    ) -> Flow[list[Standing]]:
        """Members from a path on.

        Args:
            start: the first path, or its beginning.
            end: before which path to end.
            ahead: how many members are before ``start``.
            skip: how many members to leave out.
            count: most members.
            seq: the snapshot.
        """
        prefix = self.prefix + "at/"
        wanted = skip + count
        found = yield from scan(prefix, seq, start=prefix + start, end=prefix + end, limit=wanted)
        if len(found) == wanted:
            # The last bucket may go on, and its order is that of the arrivals.
            last = self._parts(found[-1])[0]
            found = [entry for entry in found if self._parts(entry)[0] != last]
            found += yield from scan(self._at(last, ""), seq)
        buckets = [(p, list(b)) for p, b in groupby(found, key=lambda e: self._parts(e)[0])]
        wanting = [self._order(path) for path, bucket in buckets if len(bucket) > 1]
        orders = (yield from read(wanting, at=seq)) if wanting else {}
        ordered: list[Entry] = []
        for path, bucket in buckets:
            ordered += self._in_order(bucket, orders.get(self._order(path)))
        return [
            Standing(self._parts(entry)[1], score_of(self._parts(entry)[0]), ahead + place)
            for place, entry in enumerate(ordered[:wanted], 1)
        ][skip:]

    def _tidied(self, unused: list[list[Entry]]) -> Flow[int]:
        """Delete the first of each, if all are as they were; or else leave them for later."""
        entries = {entry.key: entry for each in unused for entry in each}

        def build(atomic: Builder) -> None:
            for entry in entries.values():
                atomic.check(entry)
            for each in unused:
                atomic.delete(each[0].key)

        try:
            yield from commit(build)
        except CheckFailedError:
            return 0
        return len(unused)

    def _member(self, member: str) -> str:
        return f"{self.prefix}member/{check_id(member)}"

    def _at(self, path: str, member: str) -> str:
        return f"{self.prefix}at/{path}/{member}"

    def _count(self, beginning: str) -> str:
        return f"{self.prefix}count/{beginning}"

    def _order(self, path: str) -> str:
        return f"{self.prefix}order/{path}"

    def _arrivals(self, score: int) -> str:
        return f"{self.prefix}arrivals/{score_digits(score)}"

    def _parts(self, entry: Entry) -> tuple[str, str]:
        """Path and member of an entry."""
        path, _, member = entry.key.removeprefix(self.prefix + "at/").partition("/")
        return path, member

    def _in_order(self, bucket: list[Entry], order: list[list[str]] | None) -> list[Entry]:
        """The members of one bucket by their arrival.

        Their versions tell it, unless they all were put anew from a snapshot: then their order is
        another one than that of the list. Those who arrived under a release that kept no list are
        not in it.
        """
        told = {name: n for n, name in enumerate(chain.from_iterable(order or []))}
        places = {entry.key: told.get(self._parts(entry)[1], -1) for entry in bucket}
        ordered = sorted(bucket, key=_arrival)
        listed = [place for entry in ordered if (place := places[entry.key]) >= 0]
        if listed == sorted(listed):
            return ordered
        return sorted(ordered, key=lambda entry: places[entry.key])


def _place(key: str, value: Any) -> tuple[int, int]:
    """The score and the bucket in the value of a member's key."""
    with told_by(key):
        score, bucket = value
        path_of(check_score(score), bucket)
        return score, bucket


def _arrival(entry: Entry) -> tuple[int, Any]:
    return entry.version, entry.value
