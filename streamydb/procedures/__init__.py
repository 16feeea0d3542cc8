"""Stored procedures: plain Python functions that run inside a transaction, deterministically.

A module of procedures is checked (`checker`), instrumented (`transform`) and executed against the
operators of a meter (`machine`, `methods`, `builtins`), with `db` (`view`) as its only way to the
database. `core.run` is the whole of it as one pure function; `modules` and `folder` say where code
comes from. Which version of a module is current is data: a key that a deploy writes and every call
reads, so a replay runs each transaction with the code of its time.

In a module: ``from streamydb.procedures import Abort, procedure``.
"""

from __future__ import annotations

from streamydb.procedures.declare import Abort, KeyFunction, Workflow, key_function, procedure

__all__ = ["Abort", "KeyFunction", "Workflow", "key_function", "procedure"]
