"""Explain why a query failed, and what to do; Spark's own text is the fallback."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from streamydb.local.disk import full_disk
from streamydb.pipeline.repair import REBUILD

_RUNBOOK: Final = "see docs/operations.md"
_GONE: Final = (
    "were deleted before the pipeline had read them; nothing is skipped "
    f"({_RUNBOOK}, 'Records of the log are gone')"
)
_ROOM: Final = f"make room and start again, nothing has to be repaired ({_RUNBOOK}, 'A full disk')"
_KNOWN: Final = (
    (re.compile(r"Checksum error: file:(\S+)"), "the checkpoint file {0} is damaged; " + REBUILD),
    (
        re.compile(r"state file of file:(\S+) does not exist"),
        "the checkpoint file {0} is missing; " + REBUILD,
    ),
    (
        re.compile(
            r"(?s)(?:Could not read records|KAFKA_DATA_LOSS|data may have been lost|data aged out)"
            r".*?(\S+\.feedback\S*)"
        ),
        "feedback of {0} was deleted before it was read. The log has everything; " + REBUILD,
    ),
    (
        re.compile(
            r"(Incomplete log file[^\n]*|[^\n]*offset log for batch[^\n]*doesn't exist[^\n]*|"
            r"Concurrent update to the (?:commit )?log[^\n]*|Malformed [^\n]*log[^\n]*)"
        ),
        "the checkpoint's files do not fit each other ({0}); " + REBUILD,
    ),
    (
        re.compile(r"Could not read records in offset (\[\d+, \d+\)) for topic partition (\S+)"),
        "the offsets {0} of {1} " + _GONE,
    ),
    (re.compile(r"streamydb\.[\w.]+\.(?:InvariantViolation|TooLate|ReadBefore): (.+)"), "{0}"),
    (
        re.compile(r"ModuleMissing: ([^\n]+)"),
        "{0} (docs/procedures.md, 'A version that is missing')",
    ),
    (
        re.compile(r"(No space left on device|Disk quota exceeded)"),
        "a disk is full ({0}), the checkpoint's or Spark's local one; " + _ROOM,
    ),
    (
        re.compile(r"CANNOT_LOAD_STATE_STORE"),
        "the state in the checkpoint cannot be read; " + REBUILD,
    ),
    (re.compile(r"data may have been lost|data aged out"), "records of the log " + _GONE),
)


_STATE_LOST: Final = re.compile(r"(?s)stateful_processor_api_client\.py.*EOFError")
"""Spark ends the thread that serves state to a Python worker, and tells it to the log alone."""


def explain(messages: list[str], folders: Iterable[Path] = ()) -> str:
    """Say what happened and what to do.

    Args:
        messages: of the error and its causes, outermost first.
        folders: whose disks are looked at if the messages tell nothing that is known.
    """
    for pattern, text in _KNOWN:
        for message in messages:
            found = pattern.search(message)
            if found:
                return text.format(*found.groups())
    first = messages[0] if messages else "the query ended without an error"
    said = first.split("=== Streaming Query ===")[0].strip()
    for folder in folders:
        if (full := full_disk(folder)) is not None:
            return f"{full}; {_ROOM}. {said}"
    if any(map(_STATE_LOST.search, messages)):
        return f"the state could not be read or written; the log of the pipeline tells why. {said}"
    return said


def failure_of(query: StreamingQuery) -> list[str]:
    """The messages of the error that ended ``query`` and of its causes, outermost first."""
    failure = query._jsq.exception()  # noqa: SLF001 - PySpark shows no causes
    return _messages(failure.get()) if failure.isDefined() else []


def _messages(error: Any) -> list[str]:
    found = []
    while error is not None:
        found.append(str(error.getMessage()))
        error = error.getCause()
    return found
