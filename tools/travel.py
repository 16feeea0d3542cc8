"""The stops of a transfer on its way through client, facade and engine, as docs/architecture.md
lists them.

    python -m tools.travel                trace a transfer, write the table

A stop is a file that the transfer enters on its way for the first time, by the function that is
named. What a room is made with, the checks between rooms, the stores of a shard, its state, tables
and messages (`frames`) and wire contracts (`records`) are no stops. Client and facade are traced
with a log in memory: what carries records to the broker and back (`kafka`) is no stop either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np

import streamydb
from streamydb.frames.plans import Life
from streamydb.frames.readers import ToExecutor, ToShard
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables, MemoryValues
from streamydb.parser.core import parse_feedback, parse_transactions
from streamydb.testing.clients import MemoryHost
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import TransactionProcessor

__all__ = ["Stop", "stops", "table", "write"]

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- travel -->", "<!-- /travel -->"

_PACKAGE: Final = str(Path(streamydb.__file__).parent) + "/"
_APART: Final = ("frames", "records", "testing", "verify", "local", "kafka")
"""Rooms whose files are no stops: tables and contracts, stand-ins for other machines."""

_DATA: Final = ("checks", "id_rows", "memory", "plan", "sizes", "state", "value_store")
"""Files that are no stops: states, stores and tables of a room, and checks."""

_NETWORK: Final = "client/portal.py", "client/forks.py"
"""Files that are no stops: they take a request to a facade in the same process."""

_IN_MEMORY: Final = "MemoryDatabase.run"
"""Executes what was appended, for the facade; it does what another machine does."""

_DATABASE: Final = "bank"
_CLIENT, _FACADE, _BACK = "client", "facade", "verdict back"
_T = TypeVar("_T")


class Stop(NamedTuple):
    """A file that the transfer enters in a stage, and the function by which it does."""

    stage: str
    file: str
    function: str


class _Trip:
    """Notes the stops of the code that it runs."""

    def __init__(self) -> None:
        self.stops: list[Stop] = []
        self._stage = ""
        self._executing: FrameType | None = None

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "return" and frame is self._executing:
            self._executing = None
        if event != "call" or self._executing is not None or not name.startswith(_PACKAGE):
            return
        file, function = name.removeprefix(_PACKAGE), frame.f_code.co_qualname
        if function == _IN_MEMORY:
            self._executing = frame
        room, _, rest = file.partition("/")
        if self._stage == _CLIENT and room == "facade":
            self._stage = _FACADE
        if self._stage == _FACADE and function == "MemoryLog.append":
            self._stage = _BACK
        made = "__init__" in function or function.startswith("<") or "__" in function
        if made or not rest or room in _APART or Path(file).stem in _DATA or file in _NETWORK:
            return
        if all(stop.file != file for stop in self.stops):
            self.stops.append(Stop(self._stage, file, function))

    def run(self, stage: str, function: Callable[[], _T]) -> _T:
        """Run a stage in this thread."""
        self._stage = stage
        sys.setprofile(self._note)
        try:
            return function()
        finally:
            sys.setprofile(None)

    def request(self, host: MemoryHost, function: Callable[[], _T]) -> _T:
        """Run a client's request in this thread, and what its facade does in the thread of that."""
        host.do(lambda: sys.setprofile(self._note))
        try:
            return self.run(_CLIENT, function)
        finally:
            host.do(lambda: sys.setprofile(None))


def _record(txn: str, *updates: tuple[str, str, int]) -> bytes:
    named = [{"op": op, "key": key, "value" if op == "put" else "by": n} for op, key, n in updates]
    return msgspec.json.encode({"id": txn, "updates": named})


class _Engine:
    """The engine in one thread, with one shard in memory."""

    def __init__(self) -> None:
        self._config = ShardConfig(_DATABASE, "travel", 1, 1, 1_000)
        self._state = MemoryBlobs(), MemoryValues(), MemoryIdTables()
        self._offset = 0

    def execute(self, value: bytes, trip: _Trip) -> None:
        """Execute a record of the log, and apply its feedback."""
        messages = trip.run("parse", lambda: self._parsed(value))
        granted = trip.run("shard", lambda: self._step(messages))
        processor = TransactionProcessor(self._config, 1, 1)
        feedback = trip.run("execute", lambda: [*self._outputs(processor, granted)])
        fed = trip.run("feedback", lambda: [*parse_feedback(feedback, self._config)])
        trip.run("feedback", lambda: self._step([each.message for each in fed]))

    def _parsed(self, value: bytes) -> list[ToShard]:
        offset, self._offset = self._offset, self._offset + 1
        places = np.zeros(1, np.int32), np.array([offset]), np.array([offset + 1_000])
        return [each.message for each in parse_transactions(*places, [value], 1)]

    def _step(self, messages: list[Any]) -> list[ToExecutor]:
        shard = KeyTransactionProcessor(self._config, 0, *self._state, Life("travel"))
        return [emitted.message for emitted in shard.step(messages)]

    @staticmethod
    def _outputs(processor: TransactionProcessor, granted: list[ToExecutor]) -> Iterator[bytes]:
        for output in processor.step(granted):
            records = o.formatted(output, _DATABASE)
            if records.topic == o.FEEDBACK:
                yield from (value or b"" for value in records.values.tolist())


def _requested() -> list[Stop]:
    """Return the stops of the transfer to the log, and of its verdict back to the client."""
    trip = _Trip()
    with MemoryHost() as host, host.connect() as client:
        client.put("alice", 100)
        client.put("bob", 20)

        def transfer() -> None:
            add = {"op": "add"}
            updates = [{**add, "key": "alice", "by": -30}, {**add, "key": "bob", "by": 30}]
            client.transaction(updates=updates)

        transfer()
        trip.request(host, transfer)
    return trip.stops


def _executed() -> list[Stop]:
    """Return the stops of the transfer between the log and its verdict."""
    engine = _Engine()
    opened = _record("t0", ("put", "alice", 100), ("put", "bob", 20))
    before = _record("t1", ("add", "alice", -10), ("add", "bob", 10))
    transfer = _record("t2", ("add", "alice", -30), ("add", "bob", 30))
    for value in (opened, before):
        engine.execute(value, _Trip())
    trip = _Trip()
    engine.execute(transfer, trip)
    return trip.stops


def stops() -> list[Stop]:
    """Return the stops of a transfer between two accounts, in their order."""
    requested = _requested()
    back = [stop for stop in requested if stop.stage == _BACK]
    return [*(stop for stop in requested if stop.stage != _BACK), *_executed(), *back]


def table(found: list[Stop]) -> str:
    """Return the section of the page, between its marks."""
    lines = [BEGIN, "| stage | file | function |", "|---|---|---|"]
    lines += [f"| {stop.stage} | `{stop.file}` | `{stop.function}` |" for stop in found]
    return "\n".join([*lines, END])


def write() -> None:
    """Put the table into the page."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(before + table(stops()) + rest.partition(END)[2], "utf-8")


if __name__ == "__main__":
    write()
    print(f"{len(stops())} stops")
