"""What `streamydb status` says of a pipeline."""

from __future__ import annotations

import errno
import json
import logging
from pathlib import Path

import pytest

from streamydb.cli.status import Copy, copy_row, ended, unread
from streamydb.local import processes
from streamydb.local.file_lock import write_whole
from streamydb.local.folder import FACADE, READ_MODEL, DatabaseFolder, PipelineStatus
from streamydb.pipeline import progress
from streamydb.pipeline.progress import PipelineMetrics, ProgressListener, StatusWriter
from streamydb.testing.database import wait_for


@pytest.mark.parametrize(
    ("said", "records", "lag"),
    [
        (PipelineStatus(state="failed", lag=0, read=10), 17, 7),
        (PipelineStatus(state="running", lag=5, read=10), 10, 0),
        (PipelineStatus(state="running", lag=5, read=10), None, None),
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


def test_what_has_ended_by_itself_is_told_and_what_was_stopped_is_not(tmp_path: Path) -> None:
    assert ended(tmp_path) == {}
    for name, command in ((READ_MODEL, ["true"]), (FACADE, ["sleep", "600"])):
        processes.start(tmp_path, name, command)
    wait_for(lambda: processes.find(tmp_path, READ_MODEL) is None, "the read model's end")
    log = str(processes.log_path(tmp_path, READ_MODEL))
    assert ended(tmp_path) == {READ_MODEL: log}
    for name in (READ_MODEL, FACADE):
        processes.stop(tmp_path, name)
    assert ended(tmp_path) == {}


def test_a_batch_tells_how_much_of_the_log_was_read() -> None:
    status = StatusWriter(None, "bank")
    source = {
        "numInputRows": 5, "endOffset": {"t": {"0": 7, "1": 3}},
        "latestOffset": {"t": {"0": 9, "1": 3}},
    }  # fmt: skip
    listener = ProgressListener(status, PipelineMetrics())
    listener.note(json.dumps({"batchId": 1, "batchDuration": 100, "sources": [source]}))
    assert (status.status.read, status.status.lag) == (10, 2)


def test_a_status_that_cannot_be_written_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so once, and the next change tries again."""
    full = True

    def write(path: Path, data: bytes, *, synced: bool) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_whole(path, data, synced=synced)

    monkeypatch.setattr(progress, "write_whole", write)
    path = tmp_path / "status.json"
    status = StatusWriter(path, "bank")
    with caplog.at_level(logging.WARNING):
        status.update(seq=1)
        status.update(seq=2)
    assert caplog.messages == [f"the status cannot be written: {path}: No space left on device"]
    assert (status.status.seq, path.exists()) == (2, False)
    full = False
    status.update(state="running")
    assert json.loads(path.read_bytes())["seq"] == 2


@pytest.mark.parametrize(
    ("room", "said"),
    [
        (10**9, "the process ended without saying why"),
        (0, "the process ended and the disk of {} is full (0 bytes are left)"),
    ],
)
def test_a_process_that_could_not_say_why_it_ended(
    room: int, said: str, tmp_path: Path, free: dict[Path, int]
) -> None:
    database = DatabaseFolder(tmp_path, "bank")
    file = database.status_file_of("")
    StatusWriter(file, "bank").update(state="running", pid=2**22 + 1)
    free[file.parent] = room
    found = database.status()
    assert (found.state, found.error) == ("failed", said.format(file.parent))
