"""Workflows that name what is no name, keep what cannot be kept, or run out of memory."""

from __future__ import annotations

from typing import Any

import pytest

from streamydb.procedures import call_flow
from streamydb.procedures.declare import DeclaredKeys
from tests.support.workflows import HEAD, VOTER, Log

GREETING = (
    HEAD
    + """
flow = Workflow(nested={"greet": ["write"]})

def write(db, name, view, machine):
    return [name, view, machine]

def greet(db, name):
    return db.call("write", name=name, view=1, machine=2)
"""
)


def test_a_nested_procedure_may_call_its_arguments_as_it_likes() -> None:
    result = Log(GREETING, "hall").call("hall.greet", [], name="ann")
    assert result["returned"] == ["ann", 1, 2]


NAMING = (
    HEAD
    + """
%s

def send(db, how, what):
    named = {
        "function": send, "lambda": lambda: 1, "built-in": len, "set": {1}, "view": db,
        "list": [send], "number": 5, "data": ["a", 1.5, None],
    }[what]
    if how == "emit":
        db.emit(named, 1)
    elif how == "window":
        db.window(named)
    else:
        db.call(named, x=1)
"""
)
CODES = {"emit": "unknown-stream", "window": "not-the-owner", "call": "unknown-procedure"}


@pytest.mark.parametrize("how", [*CODES])
@pytest.mark.parametrize("flow", ["", "flow = Workflow(emits={'send': ['out']})"])
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("function", "function"), ("lambda", "function"), ("built-in", "function"),
        ("set", "OrderedSet"), ("view", "ProcedureView"), ("list", "list"), ("number", "5"),
        ("data", "['a', 1.5, None]"),
    ],
)  # fmt: skip
def test_a_reason_never_tells_where_something_lies_in_memory(
    what: str, reason: str, how: str, flow: str
) -> None:
    log = Log(NAMING % flow, "m")
    result = log.call("m.send", ["$flows/m"], how=how, what=what)
    assert (result["code"], result["reason"]) == (CODES[how], reason)


KEEPING = (
    HEAD
    + """
import math

flow = Workflow(windows={
    "last": {"owner": "keep", "size": 4, "slide": 2},
    "late": {"owner": "keep", "size_ms": 40, "slide_ms": 2},
})

def keep(db, window, what):
    deep = []
    for _ in range(61):
        deep = [deep]
    named = {
        "large": 2 ** 63, "infinite": math.inf, "names": {1: 2}, "half": "\\ud800",
        "deep": deep, "deeper": [deep], "deepest": [[[deep]]],
    }
    kept = db.window(window)
    kept.insert(named[what])
    return len(kept.items())
"""
)


@pytest.mark.parametrize(
    ("window", "what", "reason"),
    [
        ("last", "large", "OverflowError"), ("last", "infinite", "TypeError"),
        ("last", "names", "TypeError"), ("late", "half", "TypeError"), ("last", "deep", None),
        ("late", "deep", "TypeError"), ("last", "deeper", "TypeError"),
        ("late", "deepest", "TypeError"),
    ],
)  # fmt: skip
def test_what_no_window_can_keep_ends_the_call(window: str, what: str, reason: str | None) -> None:
    """It was a fault of ours, which ends the query; the third ones are nested too deeply in it."""
    log = Log(KEEPING, "m")
    keys = [f"$windows/m.{name}" for name in ("last", "late")]
    result = log.call("m.keep", keys, window=window, what=what)
    assert (result["code"], result.get("reason")) == (reason and "procedure-error", reason)


def test_a_lack_of_memory_in_a_key_function_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def declared(_: Any) -> DeclaredKeys:
        raise MemoryError

    log = Log(VOTER)
    monkeypatch.setattr(call_flow, "declared", declared)
    with pytest.raises(MemoryError):
        log.call("voter.vote", ["phone/1", "$flows/voter"], phone=1, who="ann")
