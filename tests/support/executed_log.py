"""A log that the oracle executes at once: in the place of a producer and a reader of results."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Self

import pytest

from streamydb.cli.target import Target
from streamydb.kafka import producer, results
from streamydb.kafka.producer import Appended, encode
from streamydb.records import Result, decode_result
from streamydb.verify.oracle.core import Oracle

__all__ = ["ExecutedLog"]


class ExecutedLog:
    """An empty database."""

    def __init__(self) -> None:
        self._oracle = Oracle("db")
        self._results: list[Result] = []

    @classmethod
    def install(cls, patch: pytest.MonkeyPatch) -> None:
        """Let each command have a new one."""
        made: list[ExecutedLog] = []

        def reader(*_: Any, **__: Any) -> ExecutedLog:
            made[:] = [cls()]
            return made[0]

        patch.setattr(results, "ResultReader", reader)
        patch.setattr(producer, "Producer", lambda *_, **__: made[0])
        patch.setattr(Target, "must_listen", lambda _: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing ends."""

    def append(self, transaction: Any) -> Appended:
        """Execute a transaction."""
        offset = len(self._results)
        now_ms = time.time_ns() // 1_000_000
        outputs = self._oracle.apply(encode(transaction), 0, offset, now_ms)
        self._results.append(decode_result(outputs[0].value or b""))
        return Appended(0, offset, now_ms)

    def append_many(self, transactions: Iterable[Any]) -> Iterator[Appended]:
        """Execute transactions one by one."""
        yield from map(self.append, transactions)

    def wait_at(self, _partition: int, offset: int, _timeout_s: float) -> Result:
        """Return the result of a transaction."""
        return self._results[offset]
