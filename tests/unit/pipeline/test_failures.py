"""Why a query failed, in words that help."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamydb.pipeline.run import explain

LOST = (
    "Job aborted: Traceback\n"
    '  File "site-packages/pyspark/sql/streaming/stateful_processor_api_client.py", line 415\n'
    "    raise EOFError\nEOFError\n"
)


@pytest.mark.parametrize("said", ["No space left on device", "Disk quota exceeded"])
def test_a_disk_that_spark_tells_of(said: str) -> None:
    found = explain(["the query failed", f"java.io.IOException: {said}"])
    assert found.startswith(f"a disk is full ({said})")
    assert "'A full disk'" in found


def test_a_full_disk_that_spark_does_not_tell_of(free: dict[Path, int], tmp_path: Path) -> None:
    """The folder is named, and what Spark said is kept."""
    gone, roomy, full = (tmp_path / name for name in ("gone", "roomy", "full"))
    free |= {roomy: 10**9, full: 4_096}
    found = explain([LOST], (gone, roomy, full))
    assert found.startswith(f"the disk of {full} is full (4,096 bytes are left); make room")
    assert "'A full disk'" in found
    assert found.endswith(LOST.strip())


def test_state_that_was_not_served_has_another_cause(free: dict[Path, int], tmp_path: Path) -> None:
    free[tmp_path] = 10**9
    found = explain([LOST], (tmp_path,))
    assert found.startswith("the state could not be read or written; the log of the pipeline tells")
    assert found.endswith(LOST.strip())


def test_what_is_known_comes_before_a_full_disk(free: dict[Path, int], tmp_path: Path) -> None:
    free[tmp_path] = 0
    found = explain(["Checksum error: file:/c/state/1.zip at 0"], (tmp_path,))
    assert found.startswith("the checkpoint file /c/state/1.zip is damaged")


def test_spark_speaks_for_itself() -> None:
    assert explain(["who knows\n=== Streaming Query ===\nplan"]) == "who knows"
    assert explain([]) == "the query ended without an error"
