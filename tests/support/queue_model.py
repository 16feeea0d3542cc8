"""A queue in plain Python, for tests: what a log's calls of the queue's procedures amount to."""

from __future__ import annotations

import json
from typing import Any

from msgspec import UNSET

from streamydb.testing.memory import MemoryDatabase

__all__ = ["Model", "judged"]

PREFIX = "queue/jobs/"


class Model:
    """A queue in plain Python, told of every transaction that was committed, in order.

    Attributes:
        waiting: ids that were never claimed, in the order of their commits.
        claimed: id -> [number, end in ms, attempts, token].
        there: ids of the items that there are.
        ended: id -> how: completed, dead, or cancelled.
        claims: (id, token) of every claim that was ever given.
    """

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.claimed: dict[str, list[int]] = {}
        self.there: set[str] = set()
        self.ended: dict[str, str] = {}
        self.claims: set[tuple[str, int]] = set()
        self.number = self.deploys = 0

    def take(self, record: dict[str, Any], seq: int, now: int, returned: Any) -> None:
        """A transaction at its commit time, and what it returned."""
        self.deploys += "deploy" in record
        updates = record.get("updates", [])
        in_lane = any(update["key"].startswith(f"{PREFIX}lane/") for update in updates)
        for update in updates:
            item = update["key"].removeprefix(f"{PREFIX}item/")
            if update["key"].startswith("done/"):  # within a worker's own transaction
                assert update["value"] == self.claimed[update["key"].removeprefix("done/")][3]
            elif update["key"] == f"{PREFIX}inbox":
                added = update["value"]
                self._enqueue(added if isinstance(added, list) else [added])
            elif update["op"] == "delete" and item != update["key"]:
                assert in_lane
                assert self._end(item, "completed")
        called = record.get("call")
        if called is not None and called["procedure"].startswith("streamydb_queue."):
            args = called["args"]
            name = called["procedure"].partition(".")[2]
            if name == "claim":
                self._claim(args, seq, now, returned)
            elif name == "cancel":
                assert returned == (args["item"] in self.there)
                self._end(args["item"], "cancelled")
            elif name != "settle":
                told = [getattr(self, f"_{name}")(each, args, now) for each in args["claims"]]
                assert returned == told, (name, args, returned, told)

    def _enqueue(self, items: list[str]) -> None:
        self.waiting += items
        for item in items:  # one that was given up or cancelled may come back
            assert item not in self.there
            assert self.ended.pop(item, "dead") in {"dead", "cancelled"}
        self.there |= {*items}

    def _claim(self, args: dict[str, Any], seq: int, now: int, returned: Any) -> None:
        """Those whose time is up come first, then new ones, as many as are given."""
        overdue = sorted((each[0], item) for item, each in self.claimed.items() if each[1] <= now)
        again = [item for _, item in overdue if self.claimed[item][2] < args["attempts_max"]]
        given = [each[0] for each in returned["items"]]
        first = again[: args["count"]]
        assert given[: len(first)] == first
        fresh = given[len(first) :]
        assert len(given) <= args["count"]
        assert fresh == ([] if returned["full"] else self._taken(args["count"] - len(first)))
        for item, _, token, attempts, until, number in returned["items"]:
            known = self.claimed.get(item)
            self.number += known is None
            wanted = [self.number if known is None else known[0], now + args["timeout_ms"],
                      1 if known is None else known[2] + 1, seq]  # fmt: skip
            assert [number, until, attempts, token] == wanted
            self.claimed[item] = wanted
            self.claims.add((item, token))

    def _taken(self, count: int) -> list[str]:
        """Take so many ids, but for those that are claimed: they were cancelled, and came back."""
        taken: list[str] = []
        while self.waiting and len(taken) < count:
            item = self.waiting.pop(0)
            if item not in self.claimed and item not in taken:
                taken.append(item)
        return taken

    def _stands(self, claim: list[Any]) -> bool:
        known = self.claimed.get(claim[0])
        return known is not None and known[3] == claim[2]

    def _end(self, item: str, how: str) -> bool:
        """An item is over, with its claim; tell whether it was claimed."""
        if item in self.there:
            self.ended[item] = how
            self.there.remove(item)
        return self.claimed.pop(item, None) is not None

    def _complete(self, claim: list[Any], *_: Any) -> bool:
        return self._stands(claim) and self._end(claim[0], "completed")

    def _forget(self, claim: list[Any], _: Any, now: int) -> bool:
        if not self._stands(claim):
            return False
        if claim[0] in self.there:
            self.claimed[claim[0]][1:4] = now, 0, 0
            return True
        return self._end(claim[0], "cancelled")

    def _extend(self, claim: list[Any], args: dict[str, Any], now: int) -> int | None:
        if not self._stands(claim):
            return None
        self.claimed[claim[0]][1] = now + args["timeout_ms"]
        return self.claimed[claim[0]][1]

    def _release(self, claim: list[Any], args: dict[str, Any], now: int) -> bool:
        if not self._stands(claim):
            return False
        if self.claimed[claim[0]][2] >= args["attempts_max"]:
            return self._end(claim[0], "dead")
        self.claimed[claim[0]][1:4:2] = now + args["delay_ms"], 0
        return True

    def _bury(self, claim: list[Any], _: Any, now: int) -> bool:
        over = self._stands(claim) and self.claimed[claim[0]][1] <= now
        return over and self._end(claim[0], "dead")


def judged(database: MemoryDatabase) -> Model:
    """What the log says, by the model."""
    model = Model()
    for result in database.log.results:
        if result.status == "committed" and result.duplicate is UNSET:
            raw = database.log.records[result.source.offset]
            returned = json.loads(bytes(result.returned)) if result.returned is not UNSET else None
            model.take(json.loads(raw), result.seq, result.ts_ms, returned)
    return model
