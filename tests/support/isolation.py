"""Histories of lists from any path of the database, and the isolation level that each keeps."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any, Final

from histories import Answer, AppendOperation, History, Operation, ReadOperation, Seen
from histories.records import Line
from histories.serializability import check_lists

LEVELS: Final = ("PL-4", "PL-3", "PL-2", "PL-1", "none")
_BROKEN_BY: Final = {
    "G0": "none", "G1a": "PL-1", "G1b": "PL-1", "G1c": "PL-1", "G-single": "PL-2", "G2": "PL-2",
}  # fmt: skip


class Recording:
    """Operations with the times of one clock, which counts."""

    def __init__(self) -> None:
        self.ticks = itertools.count(1)
        self.lines: list[Line] = []
        self._open: dict[str, tuple[int, AppendOperation]] = {}

    def begin(self, txn_id: str, appends: Mapping[str, list[Any]], reads: list[str]) -> None:
        """A transaction is about to be appended."""
        self._open[txn_id] = (next(self.ticks), AppendOperation(txn_id, dict(appends), reads))

    def result(self, value: bytes) -> None:
        """Somebody sees a result."""
        found = json.loads(value)
        if found["id"] not in self._open or "duplicate" in found:
            return
        began, request = self._open.pop(found["id"])
        seen = {key: Seen(shown) for key, shown in found["reads"].items()}
        answer = Answer(committed=found["status"] == "committed", seq=found["seq"], seen=seen)
        self._note(began, request, answer)

    def read(self, began: int, shown: Mapping[str, Any]) -> None:
        """Somebody has read keys, asking from the time ``began`` on."""
        seen = {key: Seen(value) for key, value in shown.items()}
        self._note(began, ReadOperation(list(shown)), Answer(seen=seen))

    def now(self) -> int:
        return next(self.ticks)

    def _note(self, began: int, request: AppendOperation | ReadOperation, answer: Answer) -> None:
        self.lines.append(
            Operation(client=len(self.lines), session=0, invoked_ns=began, request=request,
                      outcome="ok", returned_ns=next(self.ticks), answer=answer)
        )  # fmt: skip

    def level(self) -> str:
        """The strongest level that the history keeps, every read held to real time."""
        found = check_lists(History.of(self.lines))
        levels = [
            "PL-3" if one.anomaly.endswith("-realtime") else _BROKEN_BY.get(one.anomaly, "none")
            for one in found
        ]
        return max(levels, key=LEVELS.index, default="PL-4")
