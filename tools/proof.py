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
from pathlib import Path
from typing import Any, Final

__all__ = ["REASONS", "is_randomized", "modules", "name_of", "reason", "record", "table"]

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "streamydb"
RESULTS: Final = ROOT / "bench" / "results" / "proof.json"
PAGE: Final = ROOT / "docs" / "proof.md"
BEGIN, END = "<!-- proof -->", "<!-- /proof -->"
_SHOWN: Final = 3

_REAL: Final = "real parts: `make campaign`, `make test-faults`, histories under kills"
_SHOWS: Final = "names, shows or starts; decides nothing"
_TYPES: Final = "types that others are held to; it has no function"
_BEGINS: Final = (
    "begins the process in which `unit/sql/test_sql_random.py` runs queries; not traced"
)
_JUDGES: Final = "judges others; mutations and histories by hand show that it notices"

REASONS: Final[dict[str, str]] = {
    "streamydb.backup.errors": _SHOWS,
    "streamydb.local.broker": _REAL,
    "streamydb.verify.check": _JUDGES,
    "streamydb.local.class_data": _SHOWS,
    "streamydb.cli.class_data": _SHOWS,
    "streamydb.cli": _SHOWS,
    "streamydb.client.awaiting.transports": _TYPES,
    "streamydb.client.blocking.transports": _TYPES,
    "streamydb.facade.console": _SHOWS,
    "streamydb.client.verification": _SHOWS,
    "streamydb.facade.kafka": _REAL,
    "streamydb.facade.kafka_changes": _REAL,
    "streamydb.facade.kafka_next": _REAL,
    "streamydb.facade.kafka_search": _REAL,
    "streamydb.facade.kafka_streams": _REAL,
    "streamydb.facade.kafka_tail": _REAL,
    "streamydb.facade.openapi_details": _SHOWS,
    "streamydb.facade.operations": _SHOWS,
    "streamydb.facade.feed_ports": _SHOWS,
    "streamydb.facade.ports": _SHOWS,
    "streamydb.facade.parameters": _TYPES,
    "streamydb.read_model.ports": _TYPES,
    "streamydb.local.file_lock": _SHOWS,
    "streamydb.local.ivy_output": _SHOWS,
    "streamydb.kafka.copies": _SHOWS,
    "streamydb.kafka.presence": _SHOWS,
    "streamydb.local.jars": _SHOWS,
    "streamydb.local.java": _SHOWS,
    "streamydb.columns.characters": _SHOWS,
    "streamydb.columns.jit": _SHOWS,
    "streamydb.layers.__main__": _SHOWS,
    "streamydb.layers.errors": _SHOWS,
    "streamydb.limits": _SHOWS,
    "streamydb.records.names": _SHOWS,
    "streamydb.kafka.patience": _REAL,
    "streamydb.pipeline.__main__": _REAL,
    "streamydb.pipeline.arrow_batches": _REAL,
    "streamydb.pipeline.checks": _REAL,
    "streamydb.pipeline.shutdown": _REAL,
    "streamydb.pipeline.failures": _REAL,
    "streamydb.pipeline.feedback": _REAL,
    "streamydb.pipeline.hosts": _REAL,
    "streamydb.pipeline.jvm": _REAL,
    "streamydb.pipeline.main": _REAL,
    "streamydb.pipeline.outcome": _REAL,
    "streamydb.pipeline.parts": _SHOWS,
    "streamydb.pipeline.progress": _REAL,
    "streamydb.pipeline.restarts": _REAL,
    "streamydb.pipeline.query": _REAL,
    "streamydb.pipeline.preparation": _REAL,
    "streamydb.pipeline.run": _REAL,
    "streamydb.pipeline.sampler": _REAL,
    "streamydb.pipeline.session": _REAL,
    "streamydb.pipeline.warmup": _SHOWS,
    "streamydb.procedures.unicode14": _SHOWS,
    "streamydb.local.launcher": _REAL,
    "streamydb.local.logs": _SHOWS,
    "streamydb.local.processes": _SHOWS,
    "streamydb.read_model.service": _REAL,
    "streamydb.kafka.changes": _REAL,
    "streamydb.read_model.metrics": _SHOWS,
    "streamydb.kafka.source": _REAL,
    "streamydb.kafka.clients": _REAL,
    "streamydb.pipeline.marker_session": _REAL,
    "streamydb.pipeline.markers": _REAL,
    "streamydb.kafka.producer": _REAL,
    "streamydb.kafka.results": _REAL,
    "streamydb.kafka.tail": _REAL,
    "streamydb.local.resources": _SHOWS,
    "streamydb.backup.snapshots.errors": _SHOWS,
    "streamydb.client.testing": _SHOWS,
    "streamydb.spark": _REAL,
    "streamydb.sql.process": _BEGINS,
    "streamydb.pipeline.standby.coordinator": _REAL,
    "streamydb.pipeline.standby.handover": _REAL,
    "streamydb.pipeline.standby.kafka": _REAL,
    "streamydb.pipeline.standby.pause": _REAL,
    "streamydb.local.signals": _REAL,
    "streamydb.testing.database": _SHOWS,
    "streamydb.kafka": _REAL,
}
"""Why no randomized test has to execute a module, by its name or that of a package above it."""


def is_randomized(item: Any) -> bool:
    """Whether a test draws its inputs: the simulation's, Hypothesis', those of a seed, marked ones.
    """
    path = item.path.relative_to(ROOT).parts
    drawn = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    seeded = "seed" in getattr(getattr(item, "callspec", None), "params", {})
    marked = "randomized" in item.keywords
    return path[:2] == ("tests", "simulation") or drawn or seeded or marked


def name_of(node: str) -> str:
    """A test's file and function, without the folder `tests` and its parameters."""
    return node.partition("[")[0].removeprefix("tests/")


def modules(files: Iterable[Path]) -> set[str]:
    """The production modules that some files are."""
    return {
        ".".join(("streamydb", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in files
        if path.is_relative_to(PACKAGE) and path.name != "__init__.py"
    }


def every() -> list[str]:
    """All production modules that hold code of their own."""
    return sorted(modules(PACKAGE.rglob("*.py")))


def reason(module: str) -> str | None:
    """Why no randomized test has to execute a module; None: one has to."""
    parts = module.split(".")
    names = [".".join(parts[:count]) for count in range(len(parts), 1, -1)]
    return next((REASONS[name] for name in names if name in REASONS), None)


def read() -> dict[str, list[str]]:
    """Per module, the randomized tests that were seen to execute it."""
    found: dict[str, list[str]] = json.loads(RESULTS.read_text("utf-8"))
    return found


def record(found: Mapping[str, set[str]]) -> None:
    """Keep what a run has found, and write the page."""
    kept = {module: sorted(found[module]) for module in every() if found.get(module)}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    write()


def missing(found: Mapping[str, list[str]]) -> list[str]:
    """Modules that no randomized test executes, and that have no reason for it."""
    return [module for module in every() if module not in found and reason(module) is None]


def table(found: Mapping[str, list[str]]) -> str:
    """The section of the page, between its marks."""
    lines = [BEGIN, "| module | executed by |", "|---|---|"]
    lines += [f"| `{module}` | {_tests(found.get(module, []), module)} |" for module in every()]
    return "\n".join([*lines, END])


def _tests(tests: list[str], module: str) -> str:
    if not tests:
        return f"none: {reason(module) or '**nothing**'}"
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
