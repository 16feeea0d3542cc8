"""Kernels are cached on disk; another release has left nothing that stops or misleads this one."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba.core import event
from numba.core.caching import CacheImpl, IndexDataCacheFile, NullCache
from numba.core.errors import TypingError

from streamydb.errors import ConfigurationError
from streamydb.frames import jit
from streamydb.frames.jit import same_text
from streamydb.frames.kernel_cache import KernelCache, KernelFile, _compiled_of

ROOT = Path(__file__).resolve().parents[3]
MODULE = """
from typing import NamedTuple
import numpy as np
from streamydb.frames.jit import kernel

class {name}(NamedTuple):
    numbers: np.ndarray

@kernel
def total(of):
    return of.numbers.sum()

print(total({name}(np.arange(5))))
"""


PARTS = """
from typing import NamedTuple
from streamydb.frames.jit import kernel

FACTOR = OTHER = {number}

class Pair(NamedTuple):
    {fields[0]}: int
    {fields[1]}: int

@kernel
def scaled(n):
    return n * {number}

@kernel
def of_constant(n):
    return n * FACTOR
"""
USES = """
import json
import numpy as np
import parts
from parts import FACTOR, Pair, of_constant, scaled
from streamydb.frames.jit import kernel

@kernel
def constant(n):
    return n * FACTOR

@kernel
def attribute(n):
    return n * parts.OTHER

@kernel
def helper(n):
    return scaled(n)

@kernel
def helpers_constant(n):
    return of_constant(n)

@kernel
def first_below(n):
    return below(n)

@kernel
def below(n):
    return helper(n)

@kernel
def field(pair):
    return pair.left

@kernel
def caught_in_a_circle(n):
    return FACTOR if n < 1 else caught_in_a_circle(n - 1)

@kernel
def alone(n):
    return n + 1

def called(kernel, of):
    result = kernel(of)
    return int(result), bool(kernel.stats.cache_hits)

kernels = constant, attribute, helper, helpers_constant, first_below, alone, caught_in_a_circle
found = {each.__name__: called(each, 1) for each in kernels}
found["field"] = called(field, Pair(2, 40))
print(json.dumps(found))
"""


def started(folder: Path, module: str) -> str:
    paths = f"{folder}{os.pathsep}{ROOT}"
    # of modules that change within a second, Python would take what it has compiled itself
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", f"import {module}"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return found.stdout.strip()


def run(folder: Path, name: str) -> str:
    (folder / "kernels.py").write_text(MODULE.format(name=name))
    return started(folder, "kernels")


def test_a_named_tuple_may_have_another_name_than_in_the_cache(tmp_path: Path) -> None:
    assert run(tmp_path, "First") == "10"
    assert run(tmp_path, "Other") == "10"


def used(folder: Path, number: int, *fields: str) -> tuple[dict[str, int], set[str]]:
    """The results of kernels, and which of them came from the cache."""
    (folder / "parts.py").write_text(PARTS.format(number=number, fields=fields))
    (folder / "uses.py").write_text(USES)
    found: dict[str, Any] = json.loads(started(folder, "uses"))
    loaded = {name for name, (_, hit) in found.items() if hit}
    return {name: result for name, (result, _) in found.items()}, loaded


def test_what_a_kernel_takes_from_another_module_is_never_stale(tmp_path: Path) -> None:
    results, loaded = used(tmp_path, 2, "left", "right")
    names, others = set(results), set(results) - {"alone"}
    assert {results[name] for name in others} == {2}
    assert not loaded
    assert used(tmp_path, 2, "left", "right") == (results, names)

    results, loaded = used(tmp_path, 40, "right", "left")
    assert {results[name] for name in others} == {40}
    assert results["alone"] == 2
    assert loaded == {"alone"}


def test_code_is_not_taken_for_that_of_the_index_beside_it(tmp_path: Path) -> None:
    """Another process has written its index, and not yet its code."""
    names = str(tmp_path), "used"
    function: Any = used
    file, earlier = KernelFile(*names, "new", function), KernelFile(*names, "old", function)
    for each in earlier, IndexDataCacheFile(*names, "old"):
        each.save("key", ("code of", "another release"))
        file._save_index({"key": each._data_name(1)})
        assert file.load("key") is None
    file.save("key", "code")
    assert file.load("key") == "code"


def test_a_user_who_may_write_nowhere_is_told_what_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service's user often has no home, and its installation is another one's."""
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    with pytest.raises(ConfigurationError, match=r"frames/jit\.py.*NUMBA_CACHE_DIR"):
        KernelCache(_compiled_of(same_text))


class Seen(event.Listener):
    """Whether Python's collector may run when a kernel begins and ends to be compiled."""

    def __init__(self) -> None:
        self.enabled: list[bool] = []

    def on_start(self, event: Any) -> None:  # noqa: ARG002 - numba's interface
        self.enabled.append(gc.isenabled())

    on_end = on_start


@pytest.fixture
def uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "KernelCache", lambda _function: NullCache())


@pytest.mark.usefixtures("uncached")
def test_a_kernel_is_compiled_once_whatever_constants_it_is_called_with() -> None:
    @jit.inlined
    def added(pair: Any, n: int) -> Any:
        return pair[0] + pair[1] + n

    @jit.kernel
    def four(n: int) -> Any:
        return added((n, 1), 10) + added((n, n), 100) + added((1, n), n=1000) + added((n, -1), n)

    assert four(5) == (5 + 1 + 10) + (5 + 5 + 100) + (1 + 5 + 1000) + (5 - 1 + 5)
    compiled: Any = added
    assert len(compiled.signatures) == 1


@pytest.mark.usefixtures("uncached")
@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_while_a_kernel_is_compiled(*, enabled: bool) -> None:
    @jit.kernel
    def good(n: float) -> float:
        return n + 1

    @jit.kernel
    def bad(n: int) -> Any:
        return good(n) + "text"  # type: ignore[operator]

    before, seen = gc.isenabled(), Seen()
    try:
        (gc.enable if enabled else gc.disable)()
        event.register("numba:compile", seen)
        with pytest.raises(TypingError):
            bad(1)
        assert gc.isenabled() is enabled
        assert good(1.5) == 2.5
        assert gc.isenabled() is enabled
    finally:
        event.unregister("numba:compile", seen)
        (gc.enable if before else gc.disable)()
    begun = 3  # the bad one, the good one in it, and the good one for another type
    assert len(seen.enabled) == 2 * begun
    assert not any(seen.enabled[::2])
