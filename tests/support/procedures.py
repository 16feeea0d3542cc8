"""Helpers of tests of stored procedures: a module from text, called on a state in memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from textwrap import dedent
from typing import Any

from streamydb.procedures.core import Called, run
from streamydb.procedures.modules import Module, compile_module
from streamydb.procedures.view import Declared, Stamp
from streamydb.records import Update, canonical
from streamydb.records.ranges import Bounds, Range
from streamydb.records.updates import apply_update

State = Mapping[str, Any]


class Host(Declared):
    """A state in memory; every key has version 7."""

    def __init__(
        self, state: State, keys: Collection[str], reads: Collection[str] = (),
        ranges: Collection[Range] = (),
    ) -> None:  # fmt: skip
        super().__init__(keys, reads, ranges)
        self.state = {key: canonical(value) for key, value in state.items()}

    def look(self, key: str) -> tuple[bytes | None, int]:
        return self.state.get(key), 7 if key in self.state else 0

    def entries(self, declared: Bounds) -> list[tuple[str, bytes]]:
        found = sorted(self.state.items())
        return [pair for pair in found if declared[0] <= pair[0].encode() < declared[1]]

    def apply(self, update: Update, before: bytes | None) -> bytes | None:
        return apply_update(update, before, 0)


def module_of(text: str, name: str = "m") -> Module:
    return compile_module(name, dedent(text).encode())


def call(
    module: Module,
    name: str,
    args: Mapping[str, Any],
    state: State | None = None,
    keys: Collection[str] = ("a", "b"),
    reads: Collection[str] = (),
    ranges: Collection[Range] = (),
) -> Called:
    place = Stamp(42, 1_700_000_000_000, "txn-1")
    host = Host(state or {}, keys, reads, ranges)
    return run(module, name, canonical(dict(args)), host, place)


def evaluate(body: str, **args: Any) -> Called:
    """Call a procedure whose body is given; its arguments are `args`."""
    lines = "\n".join("    " + line for line in dedent(body).strip().splitlines())
    text = f"import math\nfrom streamydb.procedures import Abort\n\ndef f(db, {', '.join(args)}):\n"
    return call(module_of(text + lines), "f", args)


def returned(called: Called) -> Any:
    """What a call returned, which must have gone well."""
    assert called.code is None, (called.code, called.reason)
    return json.loads(called.returned)
