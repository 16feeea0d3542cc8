"""Each invariant of a state that a backup makes, or a shard begins with, fires."""

from __future__ import annotations

import numpy as np
import pytest

from streamydb.backup import checks
from streamydb.errors import InvariantViolation
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor.id_rows import UsedIds


def piece(*versions: int) -> WrittenValues:
    n = len(versions)
    keys = Ragged.of([b"k%d" % row for row in range(n)])
    return WrittenValues(
        np.ones(n, np.uint8),
        np.zeros(n, np.int64),
        np.array(versions, np.int64),
        keys,
        Ragged.empty(n),
    )


def ids_at(*seqs: int) -> UsedIds:
    numbers = np.array(seqs, np.int64)
    hashes = numbers.astype(np.uint64)
    return UsedIds(hashes, hashes, hashes, numbers, numbers, numbers, numbers, None)


def verdicts_at(*seqs: int) -> Verdicts:
    return Verdicts.of([(seq, b"x") for seq in seqs])


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
    checks.remembered(ids_at(7, 1), verdicts_at(), 7, is_new=True)
    with pytest.raises(InvariantViolation, match="what is remembered is of its seqs"):
        checks.remembered(ids_at(*ids), verdicts_at(*verdicts), 7, is_new=False)
