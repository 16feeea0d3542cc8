"""Workers of a run compile the test files together: each a share of them, before it collects.

pytest rewrites the assertions of a file, which takes longer than everything else that a collection
does, and keeps the outcome beside Python's. Workers that begin at once, and read the same files in
the same order, would find nothing that another has kept, and all would rewrite all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _read_pyc,
    _rewrite_test,
    _write_pyc,
    assertstate_key,
    get_cache_dir,
    try_makedirs,
)

__all__ = ["compile_share"]


def compile_share(config: pytest.Config, folder: Path, number: int, workers: int) -> list[Path]:
    """Compile what is not compiled yet of a worker's share of the test files in a folder.

    Args:
        config: of this worker.
        folder: with all that is below it.
        number: of this worker, from 0.
        workers: how many there are.

    Returns:
        The files that were compiled. One that cannot be is left for the collection, which tells.
    """
    made: list[Path] = []
    if sys.dont_write_bytecode:
        return made
    state = config.stash[assertstate_key]
    for path in sorted(folder.rglob("test_*.py"))[number::workers]:
        kept = get_cache_dir(path) / (path.stem + PYC_TAIL)
        if _read_pyc(path, kept) is not None or not try_makedirs(kept.parent):
            continue
        try:
            stamp, code = _rewrite_test(path, config)
        except (SyntaxError, ValueError, OSError):
            continue
        if _write_pyc(state, code, stamp, kept):
            made.append(path)
    return made
