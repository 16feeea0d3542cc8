"""Each invariant of a state that a backup makes, or a shard begins with, fires."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamydb.backup import checks
from streamydb.columns.table import Columns, Ragged
from streamydb.errors import InvariantViolation


def piece(*versions: int) -> Columns:
    n = len(versions)
    cols: dict[str, Any] = {"tag": np.ones(n, np.uint8), "number": np.zeros(n, np.int64)}
    keys = Ragged.of([b"k%d" % row for row in range(n)])
    return Columns(
        {**cols, "version": np.array(versions, np.int64)}, {"key": keys, "text": Ragged.empty(n)}
    )


def seqs(*numbers: int) -> Columns:
    return Columns({"seq": np.array(numbers, np.int64)})


@pytest.mark.parametrize("versions", [(1, 8), (0, 7)])
def test_no_value_is_of_another_time(versions: tuple[int, int]) -> None:
    assert len(list(checks.made([piece(1), piece(2, 7)], 7))) == 2
    with pytest.raises(InvariantViolation, match=r"backup hands on a state .*versions are"):
        list(checks.made([piece(1), piece(*versions)], 7))
    with pytest.raises(InvariantViolation, match=r"backup is handed a state .*versions are"):
        list(checks.read([piece(1), piece(*versions)], 7, 3))


@pytest.mark.parametrize("keys", [2, 4])
def test_no_key_is_missing(keys: int) -> None:
    assert len(list(checks.read([piece(1), piece(2, 7)], 7, 3))) == 2
    with pytest.raises(InvariantViolation, match="every key is there"):
        list(checks.read([piece(1), piece(2, 7)], 7, keys))


@pytest.mark.parametrize(("ids", "verdicts"), [((1, 8), ()), ((0,), ()), ((3,), (3, 8))])
def test_no_id_is_of_another_time(ids: tuple[int, ...], verdicts: tuple[int, ...]) -> None:
    checks.remembered(seqs(7, 1), seqs(), 7, is_new=True)
    with pytest.raises(InvariantViolation, match="what is remembered is of its seqs"):
        checks.remembered(seqs(*ids), seqs(*verdicts), 7, is_new=False)
