"""`/v1/history`: the versions of a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from streamydb.errors import StreamyError
from streamydb.facade.answer import Answer, json_answer
from streamydb.facade.ports import ServedModel
from streamydb.facade.queries import HistoryQuery
from streamydb.facade.reads import in_thread
from streamydb.facade.request import FacadeRequest

if TYPE_CHECKING:
    from streamydb.read_model.snapshot import Snapshot as StoredSnapshot
    from streamydb.read_model.snapshot import Version

_CHUNK: Final = 16


async def get_history(request: FacadeRequest, query: HistoryQuery) -> Answer:
    """List the versions of a key, newest first, as far back as snapshots are kept.

    A version without a value is a deletion. If `more` is true, go on with `at` one less than the
    last version.
    """
    services, key = request.services, request.key
    with await services.reader.snapshot(query.point) as snapshot:
        seq = snapshot.seq
    bytes_max = services.settings.answer_bytes_max
    versions, more = await in_thread(_versions, services.model, key, seq, query.limit, bytes_max)
    answer = {"key": key, "seq": seq, "versions": list(map(_shown, versions)), "more": more}
    return json_answer(msgspec.json.encode(answer), headers={"Streamydb-Snapshot": str(seq)})


def _versions(
    model: ServedModel, key: str, at: int, limit: int, bytes_max: int
) -> tuple[list[Version], bool]:
    """Versions up to seq `at`, newest first, and whether there are more. They are read a few at a
    time, so that large values do not fill the memory before they count; what is behind a seq never
    changes, so that each part may have a snapshot of its own.
    """
    versions: list[Version] = []
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


def _part(model: ServedModel, key: str, at: int, limit: int) -> Sequence[Version]:
    if at < model.oldest():
        return ()
    try:
        with model.snapshot(at) as snapshot:
            return cast("StoredSnapshot", snapshot).history(key, limit=limit)
    except StreamyError:
        if at < model.oldest():  # it was collected meanwhile
            return ()
        raise


def _shown(version: Version) -> dict[str, Any]:
    ends = {} if version.expires_ms is None else {"expires_ms": version.expires_ms}
    return {
        "version": version.version,
        "ts_ms": version.ts_ms,
        "txn_id": version.txn_id,
        "deleted": version.value is None,
        "value": None if version.value is None else msgspec.Raw(version.value),
        **ends,
    }
