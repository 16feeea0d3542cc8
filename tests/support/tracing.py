"""`pytest --record-modules`: which production modules each randomized test executes.

A module counts as executed when one of its functions ran, or one of its kernels was loaded: not
when it was only imported. Recorded by one process (no `-n`), into bench/results/proof.json.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from streamydb.layers.deployment import FOLDER
from tools import proof

OPTION = "--record-modules"


class _Imports(threading.local):
    """How many modules a thread is importing: what they do meanwhile is no test's doing."""

    depth = 0


class ModuleRecorder:
    """Notes the modules whose functions run within randomized tests."""

    def __init__(self) -> None:
        self._found: dict[str, set[str]] = defaultdict(set)
        self._kernels: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the tests that draw nothing."""
        items[:] = [item for item in items if proof.is_randomized(item)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        """Watch the calls of one test, of its fixtures and of the threads that they start."""
        files: set[str] = set()
        imports = _Imports()

        def note(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if code.co_name == "<module>":
                imports.depth += {"call": 1, "return": -1}.get(event, 0)
            elif event == "call" and not imports.depth:
                files.add(code.co_filename)

        before = sys.getprofile()
        sys.setprofile(note)
        threading.setprofile(note)
        try:
            done = yield
        finally:
            sys.setprofile(before)
            threading.setprofile(None)
        test = proof.name_of(item.nodeid)
        fresh = _kernels() - self._kernels
        self._kernels |= fresh
        for module in {*proof.modules(map(_source, files)), *fresh}:
            self._found[module].add(test)
        return done

    def pytest_sessionfinish(self) -> None:
        """Write what was found."""
        proof.record(self._found)


def _source(name: str) -> Path:
    """The file of some code; that of a stored procedure is called `<module>`."""
    return FOLDER / f"{name[1:-1]}.py" if name.startswith("<streamydb_") else Path(name)


def _kernels() -> set[str]:
    """Modules that have a kernel of their own which was loaded."""
    return {
        name
        for name, module in sys.modules.items()
        if name.startswith("streamydb.")
        for value in vars(module).values()
        if getattr(value, "overloads", None) and getattr(value, "__module__", "") == name
    }
