"""The floors of the house: what may import what (pyproject.toml, `tool.importlinter`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import streamydb

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ROOT / "layers"
LINT = (
    "import sys; from importlinter.cli import lint_imports; sys.path[:0] = sys.argv[1:]; "
    "sys.exit(lint_imports(config_filename='pyproject.toml', no_cache=True))"
)


def lint(folder: Path, *more: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: import-linter's configuration of logging silences other loggers."""
    command = [sys.executable, "-c", LINT, *map(str, (folder, *more))]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_no_room_imports_from_above() -> None:
    done = lint(ROOT, LAYERS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_an_import_from_above_is_found(tmp_path: Path) -> None:
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
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 broken" in done.stdout


def test_no_room_hides_a_public_name() -> None:
    """Importing `streamydb.x` sets the attribute `x`, so a function of that name would be gone."""
    rooms = {path.stem for path in (ROOT / "streamydb").iterdir()}
    assert not rooms & set(streamydb.__all__)
    assert len([room for room in rooms if not room.startswith("_") and room != "py"]) <= 24
