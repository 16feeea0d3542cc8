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

from tools import proof

OPTION = "--record-modules"


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

        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call":
                files.add(frame.f_code.co_filename)

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
        for module in {*proof.modules(map(Path, files)), *fresh}:
            self._found[module].add(test)
        return done

    def pytest_sessionfinish(self) -> None:
        """Write what was found."""
        proof.record(self._found)


def _kernels() -> set[str]:
    """Modules that have a kernel of their own which was loaded."""
    return {
        name
        for name, module in sys.modules.items()
        if name.startswith("streamydb.")
        for value in vars(module).values()
        if getattr(value, "overloads", None) and getattr(value, "__module__", "") == name
    }
