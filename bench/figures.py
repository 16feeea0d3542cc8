"""Measure all of docs/figures.md again: `python -m bench.figures [--parts FOLDER] [--quick]`.

Each part is a command of `streamydb bench`, whose answer is kept in a folder. A part
that is there already is not measured again. With all of them there, their answers are put into
bench/results, and the tables are written.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import table
from bench.copies import TopicCopies
from bench.honest import FIGURES_KEPT, GEAR_KEPT, PEER_KEPT, latency_kept

__all__ = ["Part", "main", "measure", "parts"]

_PARTS: Final = Path("figures-parts")
_COPIES: Final = dict(
    zip(
        FIGURES_KEPT,
        (TopicCopies(), TopicCopies(1, sync=True), TopicCopies(3), TopicCopies(3, sync=True)),
        strict=True,
    )
)


@dataclass(frozen=True, slots=True)
class Part:
    """A command whose answer is kept.

    Attributes:
        name: of the answer in bench/results, without `.json`.
        arguments: of `streamydb bench`.
    """

    name: str
    arguments: tuple[str, ...]


def parts(*, quick: bool = False) -> list[Part]:
    """Return what is measured, in the order of measurement; ``quick``: small sizes, no figures."""
    bank = ["bank", "--no-copy-limit", "--seconds", "0"]
    late = ["latency", "--no-copy-limit", "--transactions", "50000"]
    beside = ["bank", "--no-copy-limit", "--beside", "postgresql", "--sync", "--repetitions", "1"]
    if quick:
        bank += ["--transactions", "30000", "--repetitions", "1", "--accounts", "1000"]
        late += ["--warm-up", "2", "--seconds", "2", "--accounts", "1000"]
        beside += ["--transactions", "30000", "--accounts", "1000", "--beside-seconds", "0.5"]
    else:
        bank += ["--transactions", "300000", "--warm-up-transactions", "600000"]
        late += ["--warm-up", "35", "--seconds", "15"]
        beside += ["--transactions", "300000", "--beside-seconds", "3"]
    found = [Part(name, (*bank, *_options(copies))) for name, copies in _COPIES.items()]
    found.append(Part(PEER_KEPT, tuple(beside)))
    found += [
        Part(latency_kept(name), (*late, *_options(copies))) for name, copies in _COPIES.items()
    ]
    gear = (*late, "--gear", "both", "--sync", "--rate", "100")
    return [*found, Part(GEAR_KEPT, gear)]


def _options(copies: TopicCopies) -> tuple[str, ...]:
    sync = ("--sync",) if copies.sync else ()
    return (*sync, "--replication", str(copies.replication))


def measure(wanted: Sequence[Part], folder: Path, run: Callable[[Sequence[str]], int]) -> list[str]:
    """Measure the parts that are not in `folder`; return the names of those that failed.

    ``run``: runs a command and returns its exit code.
    """
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for part in wanted:
        answer = folder / f"{part.name}.json"
        if answer.exists():
            continue
        begun = time.monotonic()
        command = [sys.executable, "-m", "streamydb.cli", "bench", *part.arguments]
        code = run([*command, "--output", str(answer)])
        took = f"{part.name}: {time.monotonic() - begun:.0f} s"
        sys.stdout.write(f"{took}\n" if code == 0 else f"{took}, failed with code {code}\n")
        sys.stdout.flush()
        if code:
            failed.append(part.name)
    return failed


def main(
    arguments: Sequence[str] | None = None, run: Callable[[Sequence[str]], int] = subprocess.call
) -> int:
    """Measure, keep and write; the exit code. ``run``: as of `measure`."""
    parser = argparse.ArgumentParser(prog="python -m bench.figures", description=__doc__)
    parser.add_argument("--parts", type=Path, default=_PARTS, help="where answers are kept so far")
    parser.add_argument("--quick", action="store_true", help="small sizes; keeps nothing")
    parser.add_argument("--list", action="store_true", help="print the names of the parts")
    parser.add_argument("--only", metavar="PART", help="measure this part; writes no tables")
    given = parser.parse_args(arguments)
    wanted = parts(quick=given.quick)
    if given.list:
        sys.stdout.writelines(f"{part.name}\n" for part in wanted)
        return 0
    if given.only is not None:
        chosen = [part for part in wanted if part.name == given.only]
        if not chosen:
            parser.error(f"no part is named {given.only}; --list names them")
        return 1 if measure(chosen, given.parts, run) else 0
    failed = measure(wanted, given.parts, run)
    if failed:
        sys.stdout.write(f"failed: {', '.join(failed)}; run it again to measure only these\n")
        return 1
    if not given.quick:
        for part in wanted:
            shutil.copyfile(given.parts / f"{part.name}.json", table.RESULTS / f"{part.name}.json")
        table.write_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
