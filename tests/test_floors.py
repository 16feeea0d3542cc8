"""The floors of the house: what may import what (pyproject.toml, `tool.importlinter`)."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

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


WITH_CIRCLES = {"cli", "client", "facade", "procedures"}
"""Rooms where files still import each other; no other one may."""


def circles(graph: grimp.ImportGraph) -> set[tuple[str, ...]]:
    """The strongly connected components of a graph of modules that have several members."""
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    reached: dict[str, set[str]] = {}
    for module in imported:
        seen, left = set[str](), [module]
        while left:
            new = imported[left.pop()] - seen
            seen |= new
            left += new
        reached[module] = seen
    return {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in imported
        if module in reached[module]
    }


def test_no_files_import_each_other() -> None:
    found = circles(grimp.build_graph("streamydb", cache_dir=None))
    new = {circle for circle in found if circle[0].split(".")[1] not in WITH_CIRCLES}
    assert not new, new


def test_a_circle_is_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")):
        graph.add_import(importer=importer, imported=imported)
    assert circles(graph) == {("a", "b", "c")}


PUBLIC = (
    "client", "client.forks", "errors", "limits", "procedures", "local.module_folder", "sql",
    "sql.child",
)  # fmt: skip
"""What layers may import; docs/layers.md lists the same."""


def lint_layer(tmp_path: Path, text: str, name: str) -> str:
    """What a contract of pyproject.toml says of a layer; ``name``: how the contract's begins."""
    layers = tmp_path / "streamydb_layers" / "made"
    layers.mkdir(parents=True)
    (layers.parent / "__init__.py").touch()
    public = "".join(f"import streamydb.{module}\n" for module in PUBLIC)
    (layers / "__init__.py").write_text(public + text)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    contract = next(each for each in settings["contracts"] if each["name"].startswith(name))
    lines = [f"{key} = {json.dumps(value)}" for key, value in contract.items()]
    head = [f"{key} = {json.dumps(settings[key])}" for key in settings if key != "contracts"]
    config = ["[tool.importlinter]", *head, "[[tool.importlinter.contracts]]", *lines]
    (tmp_path / "pyproject.toml").write_text("\n".join(config) + "\n")
    done = lint(tmp_path, ROOT)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "broken"), [("", 0), ("import streamydb.records\n", 1), ("import streamydb\n", 1)]
)
def test_layers_may_import_public_modules_only(tmp_path: Path, text: str, broken: int) -> None:
    said = lint_layer(tmp_path, text, "Layers ")
    assert f" {broken} broken" in said, said


@pytest.mark.parametrize("client", ["confluent_kafka", "kafka"])
def test_no_other_room_imports_a_client_of_kafka(tmp_path: Path, client: str) -> None:
    text = f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {client}\n"
    said = lint_layer(tmp_path, text, "One room knows")
    assert f"streamydb_layers.made -> {client}" in said, said


def test_no_room_hides_a_public_name() -> None:
    """Importing `streamydb.x` sets the attribute `x`, so a function of that name would be gone."""
    rooms = {path.stem for path in (ROOT / "streamydb").iterdir()}
    assert not rooms & set(streamydb.__all__)
    assert len([room for room in rooms if not room.startswith("_") and room != "py"]) <= 25
