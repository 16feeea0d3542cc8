"""Workers compile the test files together: each file once, for all."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import assertstate_key

from tests.support.compiled import compile_share

WORKERS = 3


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Seven test files, in two folders."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    names = [f"test_{n}.py" for n in range(4)] + [f"deeper/test_{n}.py" for n in range(3)]
    (tmp_path / "deeper").mkdir()
    for name in names:
        (tmp_path / name).write_text("def test() -> None:\n    assert [1] == [2]\n")
    return sorted(tmp_path / name for name in names)


def compiled(config: pytest.Config, folder: Path) -> list[list[Path]]:
    return [compile_share(config, folder, number, WORKERS) for number in range(WORKERS)]


def test_each_file_is_compiled_by_one_worker(
    files: list[Path], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    shares = compiled(pytestconfig, tmp_path)
    assert sorted(path for share in shares for path in share) == files
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert compiled(pytestconfig, tmp_path) == [[], [], []]


def test_what_changed_is_compiled_again_and_what_cannot_be_is_left(
    files: list[Path], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    files[1].write_text("def test(:\n")
    shares = compiled(pytestconfig, tmp_path)
    assert {path for share in shares for path in share} == {*files} - {files[1]}
    files[4].write_text("def test() -> None:\n    assert [1] == [3]\n")
    assert [path for share in compiled(pytestconfig, tmp_path) for path in share] == [files[4]]


def test_a_collection_takes_what_was_compiled(
    files: list[Path], tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(pytestconfig, tmp_path)

    def compiles(path: Path, _: pytest.Config) -> None:
        raise AssertionError(path)

    monkeypatch.setattr("_pytest.assertion.rewrite._rewrite_test", compiles)
    hook = pytestconfig.stash[assertstate_key].hook
    assert hook is not None
    for number, path in enumerate(files):
        spec = spec_from_file_location(f"compiled_{number}", path, loader=hook)
        assert spec is not None
        module = module_from_spec(spec)
        hook.exec_module(module)
        with pytest.raises(AssertionError, match=r"\[1\] == \[2\]"):  # as only rewritten ones say
            module.test()
