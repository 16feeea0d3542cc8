"""The table of docs/proof.md: which randomized test executes which production module.

    make proof                            run the randomized tests, write the table
    python -m tools.proof --write         only write the table

A randomized test draws its inputs from seeds, and holds what it finds against an oracle: the
simulator, Hypothesis, tests of a seed, and marked ones. What none of them executes has a reason.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from tools.functions import functions
from tools.proof_reasons import reason

__all__ = [
    "Found", "Proof", "decoded", "encoded", "every", "is_executed", "is_randomized", "join",
    "missing", "modules", "name_of", "read", "record", "table", "unexecuted",
]  # fmt: skip

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = (ROOT / "streamydb", ROOT / "layers" / "streamydb_layers")
RESULTS: Final = ROOT / "bench" / "results" / "proof.json"
PAGE: Final = ROOT / "docs" / "proof.md"
BEGIN, END = "<!-- proof -->", "<!-- /proof -->"
SHARE_MIN: Final = 1 / 3
"""A module of whose functions a smaller share is executed needs a reason, too."""

_SHOWN: Final = 3
_NO_FUNCTION: Final = "types and constants; it has no function"


@dataclass
class Proof:
    """The functions of a module that ran in randomized tests, and these tests."""

    functions: set[str] = field(default_factory=set)
    tests: set[str] = field(default_factory=set)

    def add(self, function: str, test: str) -> None:
        """Note that a test has executed a function."""
        self.functions.add(function)
        self.tests.add(test)


Found = dict[str, Proof]
"""What was executed, by module."""


def is_randomized(item: Any) -> bool:
    """Return if a test draws its inputs, and runs the code as it is.

    That are the simulation's tests, those of Hypothesis, those of a seed, and marked ones.
    """
    if "no_proof" in item.keywords:
        return False
    path = item.path.relative_to(ROOT).parts
    drawn = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    seeded = "seed" in getattr(getattr(item, "callspec", None), "params", {})
    marked = "randomized" in item.keywords
    simulated = path[0] == "tests" and "simulation" in path[1:3]
    return simulated or drawn or seeded or marked


def name_of(node: str) -> str:
    """A test's file and function, without the folder `tests` and its parameters."""
    return node.partition("[")[0].removeprefix("tests/")


def modules(files: Iterable[Path]) -> set[str]:
    """The production modules that some files are."""
    return {
        ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for path in files
        for package in PACKAGES
        if path.is_relative_to(package) and path.name != "__init__.py"
    }


def every() -> list[str]:
    """All production modules that hold code of their own."""
    return sorted(modules(path for package in PACKAGES for path in package.rglob("*.py")))


def functions_of(module: str) -> frozenset[str]:
    """The functions of a module; none of one that is gone."""
    package, *rooms = module.split(".")
    files = (each.joinpath(*rooms).with_suffix(".py") for each in PACKAGES if each.name == package)
    return next((functions(file) for file in files if file.is_file()), frozenset())


@cache
def stands(test: str) -> bool:
    """Return if a test of the table is still there."""
    name, _, function = test.partition("::")
    file = ROOT / "tests" / name
    wanted = f"def {function.rpartition('::')[2]}("
    return file.is_file() and wanted in file.read_text("utf-8")


def encoded(found: Found) -> dict[str, dict[str, list[str]]]:
    """What was found, as JSON holds it."""
    return {
        module: {"functions": sorted(proof.functions), "tests": sorted(proof.tests)}
        for module, proof in sorted(found.items())
    }


def decoded(kept: Mapping[str, Mapping[str, list[str]]]) -> Found:
    """The inverse of `encoded`."""
    return {
        module: Proof(set(proof["functions"]), set(proof["tests"]))
        for module, proof in kept.items()
    }


def join(found: Found, more: Found) -> None:
    """Add to what one process has found what another one has."""
    for module, proof in more.items():
        known = found.setdefault(module, Proof())
        known.functions |= proof.functions
        known.tests |= proof.tests


def standing(found: Found) -> Found:
    """What was found, without the functions and tests that are gone, and what only they show."""
    kept = {
        module: Proof(proof.functions & functions_of(module), set(filter(stands, proof.tests)))
        for module, proof in found.items()
    }
    return {module: proof for module, proof in kept.items() if proof.functions and proof.tests}


def read() -> Found:
    """What was recorded."""
    return decoded(json.loads(RESULTS.read_text("utf-8"))) if RESULTS.exists() else {}


def record(found: Found) -> None:
    """Add what a run has found to what stands, and write the page."""
    join(found, read())
    lines = [f"{json.dumps(m)}: {json.dumps(p)}" for m, p in encoded(standing(found)).items()]
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    write()


def excused(module: str) -> str | None:
    """Why no randomized test has to execute a module; None: one has to."""
    return reason(module) if functions_of(module) else _NO_FUNCTION


def missing(found: Found) -> list[str]:
    """Modules that no randomized test executes enough of, and that have no reason for it."""
    return [m for m in every() if not is_executed(found, m) and excused(m) is None]


def is_executed(found: Found, module: str) -> bool:
    """Return if randomized tests execute a good share of a module's functions."""
    executed = found.get(module, Proof()).functions
    return len(executed) > 0 and len(executed) >= SHARE_MIN * len(functions_of(module))


def unexecuted(found: Found, module: str) -> list[str]:
    """The functions of a module that no randomized test executes."""
    return sorted(functions_of(module) - found.get(module, Proof()).functions)


def table(found: Found) -> str:
    """The section of the page, between its marks."""
    lines = [BEGIN, "| module | functions | executed by |", "|---|---|---|"]
    lines += [_row(module, found.get(module, Proof())) for module in every()]
    return "\n".join([*lines, END])


def _row(module: str, proof: Proof) -> str:
    of = len(functions_of(module))
    share = f"{len(proof.functions)} of {of}" if of else "none"
    tests = _tests(sorted(proof.tests), module)
    rest = "" if is_executed({module: proof}, module) or not proof.tests else "; the rest: "
    return f"| `{module}` | {share} | {tests}{rest}{rest and excused(module)} |"


def _tests(tests: list[str], module: str) -> str:
    if not tests:
        return f"none: {excused(module) or '**nothing**'}"
    shown = ", ".join(f"`{test}`" for test in tests[:_SHOWN])
    return shown + (f" and {len(tests) - _SHOWN} more" if len(tests) > _SHOWN else "")


def write() -> None:
    """Put the table into the page."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(before + table(read()) + rest.partition(END)[2], "utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    print("\n".join(missing(read())) or "no module is missing")
