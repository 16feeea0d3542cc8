"""What the simulator makes small is small everywhere: nobody keeps a copy from the start."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamydb
from simulator.large_values import small_limits
from streamydb import limits

ROOT = Path(streamydb.__file__).parent


def made_small() -> set[str]:
    """The limits that are others within `small_limits`."""
    before = dict(vars(limits))
    with small_limits():
        return {name for name, value in vars(limits).items() if before[name] != value}


def copies(source: str, names: set[str]) -> Iterator[str]:
    """The limits of those names that a module looks at as it is imported."""
    outside: list[ast.AST] = [ast.parse(source)]
    while outside:
        node = outside.pop()
        if isinstance(node, ast.ImportFrom) and node.module == "streamydb.limits":
            yield from (each.name for each in node.names if each.name in names)
        elif isinstance(node, ast.Attribute) and node.attr in names:
            yield node.attr
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            outside += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        else:
            outside += ast.iter_child_nodes(node)


def test_no_module_keeps_a_limit_that_is_made_small() -> None:
    names = made_small()
    assert "TRANSACTION_VALUES_BYTES_MAX" in names
    found = {
        str(path.relative_to(ROOT)): kept
        for path in sorted(ROOT.rglob("*.py"))
        if path.name != "limits.py" and (kept := sorted(copies(path.read_text(), names)))
    }
    assert not found, "read it as `limits.NAME` where it is used"


@pytest.mark.parametrize(
    "source",
    [
        "from streamydb.limits import BLOCK_BYTES_MAX",
        "from streamydb import limits\nMOST = limits.BLOCK_BYTES_MAX // 2",
        "from streamydb import limits\ndef f(most=limits.BLOCK_BYTES_MAX): ...",
        "from streamydb import limits\nclass A:\n    most = limits.BLOCK_BYTES_MAX",
        "def f():\n    from streamydb.limits import BLOCK_BYTES_MAX",
    ],
)
def test_a_copy_is_found(source: str) -> None:
    inside = source.startswith("def f():")  # a function may look as late as it likes
    assert list(copies(source, {"BLOCK_BYTES_MAX"})) == ([] if inside else ["BLOCK_BYTES_MAX"])
