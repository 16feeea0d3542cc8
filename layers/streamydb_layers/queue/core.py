"""The flows of a queue: they yield requests, interpret the answers, and try again.

Enqueuing is two plain updates, so it goes into any transaction and never conflicts. Claims are
calls of `streamydb_queue`, which runs them one after the other in the order of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from streamydb.client import (
    Builder,
    CheckFailedError,
    ClientError,
    Committed,
    Entry,
    ProcedureAbortedError,
    ValueTooLargeError,
    canonical,
    new_id,
)
from streamydb.errors import ValueRejected
from streamydb.limits import VALUE_BYTES_MAX
from streamydb_layers.errors import (
    ClaimLostError,
    DuplicateIdError,
    InvalidArgumentError,
    LayerError,
    MovedError,
    told_by,
)
from streamydb_layers.names import ID_BYTES_MAX, check_id, check_name
from streamydb_layers.procedures.streamydb_queue import LANES, MOVED_MAX, PAGE_ITEMS
from streamydb_layers.queue.items import Claim, Dead, Depth, Waiting
from streamydb_layers.steps import AttemptView, Body, Build, Flow, call, commit, read, scan

ITEM_BYTES_MAX: Final = VALUE_BYTES_MAX - 100
"""Bytes of an item as canonical JSON: if it is given up, the attempts stand beside it."""

CLAIM_ITEMS_MAX: Final = 64
"""Items that one call claims, completes, extends or releases."""

MODULE: Final = "streamydb_queue"
"""The module of its procedures."""

_MOVES_MAX: Final = 12
_PAGES: Final = 3
_PAGES_MAX: Final = 256
# Often enough for a short inbox; each settling is a transaction of its own.
_SETTLE_EVERY: Final = 16
_ENDS: Final = {"head": 0, "taken": 0, "tail": 0, "paged": 0}


class QueueCore:
    """A queue's flows; its memory holds guesses, which procedures verify."""

    def __init__(self, name: str, attempts_max: int, lane: int | None, turn: int) -> None:
        if attempts_max < 1:
            raise InvalidArgumentError("attempts_max is 1 or more.")
        self.prefix = f"queue/{check_name(name)}/"
        self._attempts_max = attempts_max
        self._lane = (turn if lane is None else lane) % LANES
        self._turn = turn
        self._pages: dict[str, int] = {}

    def enqueue(self, value: Any, *, item_id: str | None = None) -> Flow[str]:
        """Add an item and return its id.

        Args:
            value: any JSON but null.
            item_id: an id of one's own: then an item that is still there is not added again.

        Raises:
            DuplicateIdError: there is such an item, or it was given up.
        """
        given = [] if item_id is None else [item_id]
        ids = yield from self.enqueue_many([value], item_ids=given)
        return ids[0]

    def enqueue_many(
        self, values: Iterable[Any], *, item_ids: Sequence[str] = (), also: Build | None = None
    ) -> Flow[list[str]]:
        """Add items in one transaction, in their order; return their ids.

        Args:
            values: any JSON but null each.
            item_ids: ids of one's own.
            also: adds more to the transaction.

        Raises:
            DuplicateIdError: one of the ids is there, or its item was given up.
        """
        ids: list[str] = []

        def build(atomic: Builder) -> None:
            ids[:] = self.enqueue_in(atomic, *values_list, item_ids=item_ids)
            if also is not None:
                also(atomic)

        values_list = list(values)
        if not values_list:
            return []
        try:
            yield from self._enqueued(build, len(values_list))
        except CheckFailedError as error:
            keys = {name(each): each for each in item_ids for name in (self._item, self._dead)}
            found = [keys[failed.key] for failed in error.failed if failed.key in keys]
            if not found:
                raise
            told = f"There is an item {found[0]!r} already. If it was given up, redrive it."
            raise DuplicateIdError(told) from error
        return ids

    def enqueue_in(self, atomic: Builder, *values: Any, item_ids: Sequence[str] = ()) -> list[str]:
        """Add items to a transaction that is being put together; return their ids.

        A transaction adds to one queue once, as it updates each key once.
        """
        if item_ids and len(item_ids) != len(values):
            raise InvalidArgumentError("Give as many ids as values, or none.")
        ids = [check_id(each) for each in item_ids] or [new_id() for _ in values]
        for item in ids if item_ids else []:
            atomic.check(self._item(item), exists=False).check(self._dead(item), exists=False)
        self._add(atomic, ids, values)
        return ids

    def claim(self, count: int = 1, *, timeout_s: float = 30) -> Flow[list[Claim]]:
        """Claim the oldest items, for a time; none if there are none.

        Args:
            count: how many at most, up to `CLAIM_ITEMS_MAX`.
            timeout_s: how long they are hidden from others, in commit time.

        Raises:
            MovedError: others were so fast that it could not be seen where the queue begins.
        """
        if not 1 <= count <= CLAIM_ITEMS_MAX:
            raise InvalidArgumentError(f"A claim has 1 to {CLAIM_ITEMS_MAX} items.")
        args = {"lane": self._lane, "count": count, "timeout_ms": _ms(timeout_s),
                "attempts_max": self._attempts_max}  # fmt: skip
        while True:
            made = yield from self._windowed("claim", "head", args)
            answer = made.returned
            yield from self._bury(answer["exhausted"])
            if answer["inbox"] > PAGE_ITEMS:
                yield from self._settle_quietly()
            claims = yield from self._with_values(answer["items"])
            if claims or not answer["items"]:
                return claims

    def complete(self, *claims: Claim) -> Flow[None]:
        """Remove items that are done.
        Raises ClaimLostError: a claim is over; the others are completed.
        """
        keys = [self._item(claim.id) for claim in claims]
        done = yield from self._settled("complete", claims, keys, {})
        self._check_held(claims, done)

    def complete_in(self, claim: Claim) -> Callable[[AttemptView], Body[None]]:
        """Remove an item that is done, in a function under `run`: with its effects, or not at all.
        Raises ClaimLostError: the claim is over.
        """

        def body(view: AttemptView) -> Body[None]:
            key = f"{self.prefix}lane/{claim.lane}"
            claims = (yield [key])[key] or {}
            with told_by(key):
                stands = claims.pop(claim.id, (0, 0, 0, None))[3] == claim.token
            self._check_held([claim], [stands])
            if claims:
                view.put(key, claims)
            else:
                view.delete(key)
            view.delete(self._item(claim.id))

        return body

    def extend(self, *claims: Claim, timeout_s: float = 30) -> Flow[list[Claim]]:
        """Hold items longer: for a time from now on; return the claims with their new end.
        Raises ClaimLostError: a claim is over; the others are extended.
        """
        args = {"timeout_ms": _ms(timeout_s)}
        ends = yield from self._settled("extend", claims, [self.prefix + "ends"], args)
        self._check_held(claims, ends)
        return [
            Claim(c.id, c.value, c.attempts, end, c.number, c.lane, c.token)
            for c, end in zip(claims, ends, strict=True)
        ]

    def release(self, *claims: Claim, delay_s: float = 0) -> Flow[None]:
        """Give items back for others to claim, or up if that was the last attempt.

        Args:
            claims: the items.
            delay_s: when others may claim them.

        Raises:
            ClaimLostError: a claim is over; the others are released.
        """
        keys = [self.prefix + "ends"]
        for claim in claims:
            keys += [self._item(claim.id), self._dead(claim.id)]
        args = {"delay_ms": _ms(delay_s), "attempts_max": self._attempts_max}
        done = yield from self._settled("release", claims, keys, args)
        self._check_held(claims, done)

    def cancel(self, item_id: str) -> Flow[bool]:
        """Remove an item, and end its claim; return True if it was there."""
        keys = [self._item(check_id(item_id)), *self._lanes()]
        sent = {"prefix": self.prefix, "item": item_id}
        made = yield from call(f"{MODULE}.cancel", sent, keys)
        return bool(made.returned)

    def peek(self, limit: int = 10) -> Flow[list[Waiting]]:
        """Show the oldest items that were never claimed, without claiming them.

        None of them if the limit is less than 1, as in scans.
        """
        shown = yield from read([self.prefix + "ends", self.prefix + "inbox"])
        ends = self._ends(shown[self.prefix + "ends"])
        ids: list[str] = []
        page, skipped = ends["head"], ends["taken"]
        while len(ids) < limit and page <= ends["tail"]:
            key = f"{self.prefix}page/{page}"
            there = (yield from read([key], at=shown.seq))[key]
            with told_by(key):
                ids += (there or [])[skipped:]
            page, skipped = page + 1, 0
        ids = list(dict.fromkeys(ids + self._arrived(shown[self.prefix + "inbox"])))
        ids = ids[: max(limit, 0)]
        items = yield from read([self._item(each) for each in ids], at=shown.seq)
        entries = [items.entries[self._item(each)] for each in ids]
        return [
            Waiting(each, entry.value, entry.version, entry.ts_ms)
            for each, entry in zip(ids, entries, strict=True)
            if entry.exists
        ]

    def depth(self) -> Flow[Depth]:
        """Count the items at one snapshot, those cancelled meanwhile too."""
        inbox, ends = self.prefix + "inbox", self.prefix + "ends"
        shown = yield from read([inbox, ends, *self._lanes()])
        waiting = self._ends(shown[ends])["paged"] + len(self._arrived(shown[inbox]))
        claimed = 0
        for lane in self._lanes():
            with told_by(lane):
                claimed += len(shown[lane] or ())
        return Depth(waiting, claimed)

    def dead(self, limit: int = 100) -> Flow[list[Dead]]:
        """Show items that were given up, in the order of their ids."""
        prefix = self.prefix + "dead/"
        seq = (yield from read([prefix])).seq
        found = yield from scan(prefix, seq, limit=limit)
        return [_dead(entry.key.removeprefix(prefix), entry) for entry in found]

    def redrive(self, item_id: str) -> Flow[bool]:
        """Enqueue an item again that was given up; tell whether it was there."""
        key = self._dead(check_id(item_id))
        entry = (yield from read([key])).entries[key]
        if not entry.exists:
            return False
        value = _dead(item_id, entry).value

        def build(atomic: Builder) -> None:
            atomic.check(self._item(item_id), exists=False).check(entry).delete(key)
            self._add(atomic, [item_id], [value])

        try:
            yield from self._enqueued(build, 1)
        except CheckFailedError as error:
            if error.failed[0].key == key:
                return False
            raise DuplicateIdError(f"There is an item {item_id!r} already.") from error
        return True

    def settle(self) -> Flow[int]:
        """Move ids from the inbox into pages, where a claim reads few of them.

        Other calls do it now and then; it needs doing only where items are enqueued in other
        transactions alone, and claimed seldom. Returns how many entries the inbox has left.
        """
        made = yield from self._windowed("settle", "tail", {})
        left: int = made.returned["left"]
        return left

    def _add(self, atomic: Builder, ids: list[str], values: Sequence[Any]) -> None:
        for item, value in zip(ids, values, strict=True):
            atomic.put(self._item(item), _fitting(value))
        atomic.append(self.prefix + "inbox", ids[0] if len(ids) == 1 else ids)

    def _enqueued(self, build: Build, count: int) -> Flow[None]:
        """Commit a transaction that enqueues so many items; settle if the inbox is full."""
        for _ in range(_MOVES_MAX):
            try:
                yield from commit(build)
            except ValueTooLargeError as error:
                if error.failed[0].key != self.prefix + "inbox":
                    raise
                yield from self.settle()
            else:
                yield from self._now_and_then(count)
                return
        raise MovedError("The inbox of the queue was full again after it was emptied.")

    def _item(self, item_id: str) -> str:
        return f"{self.prefix}item/{item_id}"

    def _dead(self, item_id: str) -> str:
        return f"{self.prefix}dead/{item_id}"

    def _lanes(self) -> list[str]:
        return [f"{self.prefix}lane/{number}" for number in range(LANES)]

    def _ends(self, stored: Any) -> dict[str, int]:
        """The pages in use, and how many ids are in them."""
        with told_by(self.prefix + "ends"):
            return {name: int((stored or _ENDS)[name]) for name in _ENDS}

    def _arrived(self, inbox: Any) -> list[str]:
        """The ids of an inbox, as the procedures see them."""
        with told_by(self.prefix + "inbox"):
            lists = [entry if isinstance(entry, list) else [entry] for entry in inbox or []]
        texts = [each for entries in lists for each in entries if isinstance(each, str)]
        return [each for each in texts if 1 <= len(each.encode()) <= ID_BYTES_MAX]

    def _windowed(self, name: str, end: str, args: dict[str, Any]) -> Flow[Committed]:
        """Call a procedure on the pages where it probably works, elsewhere if it was not so."""
        if not self._pages:
            key = self.prefix + "ends"
            ends = self._ends((yield from read([key], consistency="session"))[key])
            self._pages = {"head": ends["head"], "tail": ends["tail"]}
        fixed = [self.prefix + "ends", self.prefix + "inbox"]
        fixed += self._lanes() if name == "claim" else []
        count = _PAGES + (MOVED_MAX // PAGE_ITEMS if name == "settle" else 0)
        for _ in range(_MOVES_MAX):
            first = self._pages[end]
            pages = [f"{self.prefix}page/{number}" for number in range(first, first + count)]
            sent = {"prefix": self.prefix, "window": [first, count], **args}
            try:
                made = yield from call(f"{MODULE}.{name}", sent, [*fixed, *pages])
            except ProcedureAbortedError as error:
                self._pages[end] = _moved_to(error)
                count = min(_PAGES_MAX, 2 * count)
            else:
                self._pages[end] = made.returned["page"]
                return made
        raise MovedError(f"The {end} of the queue was elsewhere in {_MOVES_MAX} attempts.")

    def _settled(
        self, name: str, claims: Sequence[Claim], keys: list[str], args: dict[str, Any]
    ) -> Flow[list[Any]]:
        """Call a procedure on claims."""
        if len(claims) > CLAIM_ITEMS_MAX:
            raise InvalidArgumentError(f"At most {CLAIM_ITEMS_MAX} claims at a time.")
        if not claims:
            return []
        lanes = [f"{self.prefix}lane/{claim.lane}" for claim in claims]
        sent = {"prefix": self.prefix, "claims": [claim.receipt for claim in claims], **args}
        made = yield from call(f"{MODULE}.{name}", sent, [*lanes, *keys])
        done: list[Any] = made.returned
        return done

    def _check_held(self, claims: Sequence[Claim], done: Sequence[Any]) -> None:
        lost = [claim.id for claim, held in zip(claims, done, strict=True) if not held]
        if lost:
            raise ClaimLostError(f"No longer claimed by this worker: {', '.join(lost)}.")

    def _with_values(self, items: list[list[Any]]) -> Flow[list[Claim]]:
        """The claims with their items; those of items that were cancelled are ended."""
        if not items:
            return []
        keys = [self._item(each[0]) for each in items]
        found = yield from read(keys, consistency="session")
        claims = [
            Claim(item, found[self._item(item)], attempts, until, number, lane, token)
            for item, lane, token, attempts, until, number in items
        ]
        gone = [claim for claim in claims if claim.value is None]
        keys = [self.prefix + "ends", *(self._item(claim.id) for claim in gone)]
        yield from self._settled("forget", gone, keys, {})
        return [claim for claim in claims if claim.value is not None]

    def _bury(self, receipts: list[list[Any]]) -> Flow[None]:
        """Give up items whose last attempt is over."""
        if not receipts:
            return
        keys = [f"{self.prefix}lane/{lane}" for _, lane, _ in receipts]
        for item, _, _ in receipts:
            keys += [self._item(item), self._dead(item)]
        sent = {"prefix": self.prefix, "claims": receipts}
        # Whoever claims next tries again: it must not cost this caller what it has just claimed.
        with suppress(ClientError):
            yield from call(f"{MODULE}.bury", sent, keys)

    def _now_and_then(self, count: int) -> Flow[None]:
        """Settle after so many items that were enqueued here."""
        before = self._turn // _SETTLE_EVERY
        self._turn += count
        if self._turn // _SETTLE_EVERY != before:
            yield from self._settle_quietly()

    def _settle_quietly(self) -> Flow[None]:
        """Settle; what was asked for is done already, so nothing that goes wrong here matters."""
        with suppress(ClientError, LayerError):
            yield from self.settle()


def _fitting(value: Any) -> Any:
    """Return an item's value; what is no value at all is refused with the transaction.
    Raises InvalidArgumentError: it is too long.
    """
    with suppress(ValueRejected):
        if len(canonical(value)) > ITEM_BYTES_MAX:
            raise InvalidArgumentError(f"An item has at most {ITEM_BYTES_MAX:,} bytes as JSON.")
    return value


def _moved_to(error: ProcedureAbortedError) -> int:
    """The page that a procedure says it needs."""
    word, _, page = (error.reason or "").partition(" ")
    if word != "moved" or not page.isdecimal():
        raise error
    return int(page)


def _dead(item_id: str, entry: Entry) -> Dead:
    """The item in the value of a key under `dead/`."""
    with told_by(entry.key):
        return Dead(item_id, *(entry.value[name] for name in ("value", "attempts", "at")))


def _ms(seconds: float) -> int:
    if not 0 <= seconds <= 365 * 86_400:
        raise InvalidArgumentError("A time is 0 s to a year.")
    return round(seconds * 1000)
