"""`/v1/history`: the versions of a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

import msgspec

from streamydb.errors import StreamyError
from streamydb.facade.answer import Answer, json_answer
from streamydb.facade.ports import ReadModel
from streamydb.facade.queries import HistoryQuery, point_of
from streamydb.facade.reads import in_thread
from streamydb.facade.request import Request

_CHUNK: Final = 16


class HistoryLine(Protocol):
    """A line of a key's history."""

    @property
    def version(self) -> int:
        """The seq of the transaction that wrote it."""

    @property
    def ts_ms(self) -> int:
        """Its commit timestamp."""

    @property
    def value(self) -> bytes | None:
        """The value, canonical JSON; None: it was deleted."""

    @property
    def txn_id(self) -> str:
        """The id of the transaction that wrote it."""

    @property
    def expires_ms(self) -> int | None:
        """The commit time (ms) from which on the key is absent; None: it has no end."""


class KeepsHistory(Protocol):
    """A snapshot that knows more than the last version of a key."""

    def history(self, key: str, limit: int = 100) -> Sequence[HistoryLine]:
        """Return versions of a key, newest first."""


async def get_history(request: Request, query: HistoryQuery) -> Answer:
    """List the versions of a key, newest first, as far back as snapshots are kept.

    A version without a value is a deletion. If `more` is true, go on with `at` one less than the
    last version.
    """
    services, key = request.services, request.key
    with await services.reader.snapshot(point_of(query)) as snapshot:
        seq = snapshot.seq
    bytes_max = services.settings.answer_bytes_max
    versions, more = await in_thread(_versions, services.model, key, seq, query.limit, bytes_max)
    answer = {"key": key, "seq": seq, "versions": list(map(_shown, versions)), "more": more}
    return json_answer(msgspec.json.encode(answer), headers={"Streamydb-Snapshot": str(seq)})


def _versions(
    model: ReadModel, key: str, at: int, limit: int, bytes_max: int
) -> tuple[list[HistoryLine], bool]:
    """Versions up to seq `at`, newest first, and whether there are more.

    They are read a few at a time, so that large values do not fill the memory before they count;
    what is behind a seq never changes, so that each part may have a snapshot of its own.
    """
    versions: list[HistoryLine] = []
    size = 0
    while True:
        size_wanted = min(_CHUNK, limit + 1 - len(versions))
        chunk = _part(model, key, at, size_wanted)
        for version in chunk:
            size += len(version.value or b"")
            if versions and (size > bytes_max or len(versions) == limit):
                return versions, True
            versions.append(version)
        if len(chunk) < size_wanted:
            return versions, False
        at = chunk[-1].version - 1


def _part(model: ReadModel, key: str, at: int, limit: int) -> Sequence[HistoryLine]:
    if at < model.oldest():
        return ()
    try:
        with model.snapshot(at) as snapshot:
            return cast("KeepsHistory", snapshot).history(key, limit=limit)
    except StreamyError:
        if at < model.oldest():  # it was collected meanwhile
            return ()
        raise


def _shown(version: HistoryLine) -> dict[str, Any]:
    ends = {} if version.expires_ms is None else {"expires_ms": version.expires_ms}
    return {
        "version": version.version,
        "ts_ms": version.ts_ms,
        "txn_id": version.txn_id,
        "deleted": version.value is None,
        "value": None if version.value is None else msgspec.Raw(version.value),
        **ends,
    }
