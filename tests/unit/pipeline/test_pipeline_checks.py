"""The invariants of the hosts fire, and what they say reaches the operator and nobody else."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from streamydb.errors import InvariantViolation
from streamydb.frames.invariants import HANDED_IN, Seam
from streamydb.frames.table import Ragged
from streamydb.pipeline import arrow_batches
from streamydb.pipeline.run import explain
from streamydb.records.rulings import STOPPING, faults_in
from streamydb.txn_processor.outputs import OutputRecords


def test_a_block_that_went_astray_stops_the_batch() -> None:
    rows = [SimpleNamespace(dest=1, block=b"one"), SimpleNamespace(dest=0, block=b"other")]
    assert list(arrow_batches.blocks_for(1, rows[:1])) == [b"one"]
    with pytest.raises(InvariantViolation, match=r"pipeline is handed a block .*here 1, to 0"):
        list(arrow_batches.blocks_for(1, rows))


def test_keys_without_values_stop_the_batch() -> None:
    records = OutputRecords(0, Ragged.of([b"a", b"b"]), Ragged.of([b"1", b"2"]))
    assert arrow_batches.paired(records) is records
    records.values = records.values.part(0, 1)
    with pytest.raises(InvariantViolation, match="pipeline hands on records"):
        arrow_batches.paired(records)


def test_more_texts_than_a_batch_may_have_stop_the_batch() -> None:
    """Arrow would tell the end of the last one as a negative number."""
    most = (1 << 31) - 1
    ends = [0, most - 10, most]
    records = OutputRecords(
        0, Ragged.of([b"a", b"b"]), Ragged(np.empty(0, np.uint8), np.array(ends))
    )
    assert arrow_batches.paired(records) is records
    records.values.offsets[-1] += 1
    with pytest.raises(InvariantViolation, match=r"at most 2 GiB .*bytes 2147483648"):
        arrow_batches.paired(records)


def test_the_operator_is_told_and_nobody_rules_on_it() -> None:
    """It is no fault of a transaction: see `FaultHandler.may_repeat`."""
    with pytest.raises(InvariantViolation) as raised:
        Seam("sorter", HANDED_IN, "records").require(False, "they are good", row=3)
    assert isinstance(raised.value, STOPPING)
    spark = f"Job aborted\nstreamydb.errors.InvariantViolation: {raised.value}\n\tat java"
    assert faults_in([spark]) == []
    shown = explain([spark])
    assert shown.startswith("sorter is handed records of which this is not true: they are good")
    assert shown.endswith("(docs/operations.md, 'A broken invariant')")
