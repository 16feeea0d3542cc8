"""The floors of the house: what may import what (pyproject.toml, `tool.importlinter`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_ERROR, EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).resolve().parents[1]


def lint(config: Path) -> int:
    return lint_imports(config_filename=str(config), no_cache=True)


def test_no_room_imports_from_above(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    assert lint(ROOT / "pyproject.toml") == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_an_import_from_above_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = tmp_path / "crooked_house"
    rooms = {"": "", "attic": "", "cellar": "from crooked_house.attic import x\n"}
    for room, text in rooms.items():
        (house / room).mkdir(parents=True, exist_ok=True)
        (house / room / "__init__.py").write_text(text)
    config = tmp_path / "pyproject.toml"
    config.write_text(
        '[tool.importlinter]\nroot_package = "crooked_house"\n'
        '[[tool.importlinter.contracts]]\nname = "floors"\ntype = "layers"\n'
        'containers = ["crooked_house"]\nlayers = ["attic", "cellar"]\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert lint(config) == EXIT_STATUS_ERROR
