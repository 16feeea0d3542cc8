"""What `streamydb status` says of a pipeline."""

from __future__ import annotations

import json

import pytest

from streamydb.cli.status import Copy, copy_row, unread
from streamydb.local.folder import PipelineStatus
from streamydb.pipeline.progress import PipelineMetrics, ProgressListener, StatusWriter


@pytest.mark.parametrize(
    ("said", "records", "lag"),
    [
        (PipelineStatus(state="failed", lag=0, read=10), 17, 7),
        (PipelineStatus(state="running", lag=5, read=10), 10, 0),
        (PipelineStatus(state="running", lag=5, read=10), None, None),
        (PipelineStatus(state="running", lag=5), 17, 5),  # of an earlier release
        (PipelineStatus(state="failed", lag=0), 17, None),
        (PipelineStatus(), 17, None),
    ],
)
def test_the_lag_is_of_the_log_as_it_is_now(
    said: PipelineStatus, records: int | None, lag: int | None
) -> None:
    assert unread(said, records) == lag


def test_the_copy_for_connect_has_a_row_if_there_is_one() -> None:
    assert copy_row(None) is None
    assert copy_row(Copy(0, None)) == "nothing was copied yet"
    assert copy_row(Copy(1234, 7)) == "the last copied change has seq 1,234, process 7"


def test_a_batch_tells_how_much_of_the_log_was_read() -> None:
    status = StatusWriter(None, "bank")
    source = {
        "numInputRows": 5, "endOffset": {"t": {"0": 7, "1": 3}},
        "latestOffset": {"t": {"0": 9, "1": 3}},
    }  # fmt: skip
    listener = ProgressListener(status, PipelineMetrics())
    listener.note(json.dumps({"batchId": 1, "batchDuration": 100, "sources": [source]}))
    assert (status.status.read, status.status.lag) == (10, 2)
