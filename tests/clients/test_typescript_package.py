"""The TypeScript client: compiles strictly, and its own tests and examples hold."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clients.toolchain import needs, node_module, run
from tools.console_client import FOLDER, compiled

PACKAGE = Path(__file__).resolve().parents[2] / "clients" / "typescript"

pytestmark = pytest.mark.timeout(1_200)


def test_the_package() -> None:
    needs("node", "npm")
    lock, installed = PACKAGE / "package-lock.json", PACKAGE / "node_modules/.package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], PACKAGE)
    said = run(["npm", "test"], PACKAGE, STREAMYDB_PYTHON=sys.executable)
    assert "# fail 0" in said
    assert int(said.split("# pass ")[1].split()[0]) > 45


def test_the_console_has_the_compiled_client() -> None:
    copied = {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}
    assert copied == compiled(node_module("tsc")), "run: python -m tools.console_client"
