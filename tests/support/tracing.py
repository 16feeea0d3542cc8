"""`pytest --record-modules`: which functions of production each randomized test executes.

A function counts when it ran in a test that passed, not while a module was imported. numba tells a
profiler of kernels that Python calls. A run adds to bench/results/proof.json what it has seen.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from streamydb_layers.deployment import FOLDER
from tools import proof
from tools.functions import Function, called

OPTION = "--record-modules"
_SENT = "modules"


class _Imports(threading.local):
    """How many modules a thread is importing: what they do meanwhile is no test's doing."""

    depth = 0


class ModuleRecorder:
    """Notes the functions that run within randomized tests; in a worker, for the controller."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._found: proof.Found = {}
        self._failed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the tests that draw nothing."""
        items[:] = [item for item in items if proof.is_randomized(item)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        """Watch the calls of one test, of its fixtures and of the threads that they start."""
        seen: dict[int, CodeType] = {}
        imports = _Imports()

        def note(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if code.co_name == "<module>":
                imports.depth += {"call": 1, "return": -1}.get(event, 0)
            elif event == "call" and not imports.depth:
                seen[id(code)] = code

        before = sys.getprofile()
        sys.setprofile(note)
        threading.setprofile(note)
        try:
            done = yield
        finally:
            sys.setprofile(before)
            threading.setprofile(None)
        if item.nodeid not in self._failed:
            self._add(proof.name_of(item.nodeid), seen.copy().values())  # threads go on
        return done

    def _add(self, test: str, codes: Iterable[CodeType]) -> None:
        executed = [
            Function(module, code.co_qualname)
            for code in codes
            for module in proof.modules([_source(code.co_filename)])
        ]
        for function in called(executed):
            self._found.setdefault(function.module, proof.Proof()).add(function.name, test)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that failed shows nothing."""
        if report.outcome != "passed":
            self._failed.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker has seen."""
        proof.join(self._found, proof.decoded(node.workeroutput[_SENT]))

    def pytest_sessionfinish(self) -> None:
        """Write what was found, or send it."""
        sent = getattr(self._config, "workeroutput", None)
        if sent is None:
            proof.record(self._found)
        else:
            sent[_SENT] = proof.encoded(self._found)


def _source(name: str) -> Path:
    """The file of some code; that of a stored procedure is called `<module>`."""
    return FOLDER / f"{name[1:-1]}.py" if name.startswith("<streamydb_") else Path(name)
