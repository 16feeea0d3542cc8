"""Every production module that can change an outcome is executed by a randomized test."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from streamydb.frames import hashing
from tests.support.tracing import ModuleRecorder
from tools import proof
from tools.functions import Function, called, functions
from tools.proof_reasons import REASONS

THIS = "unit/tools/test_proof.py::test_the_page_is_what_was_recorded"


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of results and a page, both empty; where the results are."""
    monkeypatch.setattr(proof, "RESULTS", tmp_path / "proof.json")
    monkeypatch.setattr(proof, "PAGE", tmp_path / "proof.md")
    proof.PAGE.write_text(f"{proof.BEGIN}{proof.END}")
    return proof.RESULTS


def test_every_module_is_executed_by_a_randomized_test_or_has_a_reason() -> None:
    assert proof.missing(proof.read()) == [], "write a randomized test; then `make proof`"


def test_every_reason_is_needed() -> None:
    found = proof.read()
    unproven = [module for module in proof.every() if not proof.is_executed(found, module)]
    idle = [name for name in REASONS if not any(
        module == name or module.startswith(f"{name}.") for module in unproven
    )]  # fmt: skip
    assert idle == [], "executed by now, or gone"


def test_what_was_recorded_is_still_there() -> None:
    found = proof.read()
    assert proof.encoded(proof.standing(found)) == proof.encoded(found), "gone: `make proof`"


def test_the_page_is_what_was_recorded() -> None:
    assert proof.table(proof.read()) in proof.PAGE.read_text("utf-8"), "make proof"


def test_what_is_gone_does_not_survive_a_recording(empty: Path) -> None:
    tests = [THIS, "unit/tools/test_proof.py::test_gone", "unit/gone.py::test_gone"]
    shown = {"functions": ["hash_bytes", "hash_gone"], "tests": tests}
    gone = {"functions": ["hash_gone"], "tests": [THIS]}
    empty.write_text(json.dumps({
        "streamydb.frames.hashing": shown, "streamydb.frames.encoding": gone,
        "streamydb.gone": shown, "simulator.log": shown,
        "streamydb.frames.table": {"functions": ["take"], "tests": tests[1:]},
    }))  # fmt: skip
    proof.record({"streamydb.limits": proof.Proof({"gone"}, {THIS})})
    kept = {"functions": ["hash_bytes"], "tests": [THIS]}
    assert json.loads(empty.read_text()) == {"streamydb.frames.hashing": kept}
    assert "gone" not in proof.PAGE.read_text()


def test_a_recording_adds_to_what_stands(empty: Path) -> None:
    proof.record({"streamydb.frames.hashing": proof.Proof({"hash_bytes"}, {THIS})})
    proof.record({"streamydb.frames.hashing": proof.Proof({"shard_of"}, {THIS})})
    assert proof.read()["streamydb.frames.hashing"].functions == {"hash_bytes", "shard_of"}
    assert "hash_bytes" not in proof.unexecuted(proof.read(), "streamydb.frames.hashing")
    assert empty.read_text().count("\n") == 3, "a line per module"


def test_a_module_of_which_little_is_executed_needs_a_reason() -> None:
    module = "streamydb.frames.hashing"
    little = {module: proof.Proof({"hash_bytes"}, {THIS})}
    assert module in proof.missing(little)
    enough = {module: proof.Proof({"hash_bytes", "shard_of", "hash_ragged"}, {THIS})}
    assert module not in proof.missing(enough)
    assert "| 3 of 8 |" in proof.table(enough)


def test_stubs_are_no_functions(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "class A(Protocol):\n def stub(self): ...\n def told(self):\n  'Say.'\n def real(self):\n"
        "  def inner(): return 1\n  return inner\n"
        "@typing.overload\ndef f(x): return x\nif 1:\n async def g(): pass\n"
    )
    assert functions(file) == {"A.real", "A.real.<locals>.inner", "g"}


def test_a_kernel_counts_with_the_kernels_that_it_may_call() -> None:
    found = called([Function("streamydb.frames.hashing", "_hash_all")])
    names = {function.name for function in found if function.module == hashing.__name__}
    assert names == {"_hash_all", "hash_span", "word_at", "mix"}


class _Item:
    """A test, as the recorder sees it."""

    nodeid = f"tests/{THIS}[1]"


class _Config:
    """The configuration of a worker."""

    def __init__(self) -> None:
        self.workeroutput: dict[str, Any] = {}


class _Report:
    """The report of a test that failed."""

    nodeid, outcome = _Item.nodeid, "failed"


@pytest.mark.parametrize("failed", [False, True])
def test_a_worker_sends_what_tests_that_passed_have_executed(*, failed: bool) -> None:
    config: Any = _Config()
    recorder = ModuleRecorder(config)
    report: Any = _Report()
    before = sys.getprofile()
    run: Any = recorder.pytest_runtest_protocol(_item())
    next(run)
    hashing.hash_bytes(b"a")
    if failed:
        recorder.pytest_runtest_logreport(report)
    with pytest.raises(StopIteration):
        run.send(True)
    assert sys.getprofile() is before
    recorder.pytest_sessionfinish()
    sent = config.workeroutput["modules"].get(hashing.__name__, {"functions": [], "tests": []})
    assert sent["tests"] == ([] if failed else [THIS])
    assert ("_hash_all" in sent["functions"]) is not failed


def _item() -> Any:
    return _Item()
