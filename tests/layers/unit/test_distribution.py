"""The distribution streamydb-layers: what it is made of, and with which release it goes."""

from __future__ import annotations

import configparser
import importlib
from pathlib import Path

import pytest

import streamydb
import streamydb_layers
from tools.requirements import requirements

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = {
    "streamydb": ROOT / "setup.cfg", "streamydb_layers": ROOT / "layers" / "setup.cfg"
}  # fmt: skip


def settings(package: str) -> configparser.ConfigParser:
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(SETTINGS[package], encoding="utf-8")
    return setup


def test_both_distributions_are_one_release() -> None:
    needs = settings("streamydb_layers")["options"]["install_requires"].splitlines()
    assert f"streamydb == {streamydb.__version__}" in map(str.strip, needs)
    assert streamydb_layers.__version__ == streamydb.__version__


@pytest.mark.parametrize("package", SETTINGS)
def test_a_wheel_has_all_rooms_of_its_own_package_and_no_other(package: str) -> None:
    include = settings(package)["options.packages.find"]["include"]
    assert include == f"{package}, {package}.*"
    folder = SETTINGS[package].parent / package
    rooms = {path.parent for path in folder.rglob("*.py")}
    assert [room for room in rooms if not (room / "__init__.py").is_file()] == []
    assert (folder / "py.typed").is_file()
    assert "py.typed" in settings(package)["options.package_data"][package]


def test_sqlalchemy_finds_the_dialect_by_the_entry_points() -> None:
    points = settings("streamydb_layers")["options.entry_points"]["sqlalchemy.dialects"]
    names = dict(line.split(" = ") for line in points.strip().splitlines())
    assert set(names) == {"streamydb", "streamydb.rest"}
    for place in names.values():
        module, _, name = place.partition(":")
        assert getattr(importlib.import_module(module), name).name == "streamydb"
    assert "options.entry_points" in settings("streamydb")
    assert "sqlalchemy.dialects" not in settings("streamydb")["options.entry_points"]


def test_what_installs_names_the_requirements_of_both() -> None:
    names = {line.split(">")[0] for line in requirements(["server", "sql", "alchemy", "test"])}
    assert {"duckdb", "sqlglot", "sqlalchemy", "alembic", "msgspec"} <= names
    with pytest.raises(KeyError, match="nonsense"):
        requirements(["nonsense"])
