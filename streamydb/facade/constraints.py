"""`/v1/constraints`: the constraints that hold."""

from __future__ import annotations

import msgspec
from litestar import Response, get

from streamydb.facade import parameters as q
from streamydb.facade.openapi import answers
from streamydb.facade.read_answers import SNAPSHOT_HEADER
from streamydb.facade.reads import ReadPoint
from streamydb.facade.services import AnyRequest, client_of, json_response, services_of
from streamydb.records import CONSTRAINTS_KEY

__all__ = ["get_constraints"]


@get(
    "/v1/constraints",
    responses=answers(
        "invalid-parameter", "unauthorized", "forbidden", "snapshot-gone", "overloaded",
        "log-unavailable", "read-model-behind", "not-ready",
    ),
)
async def get_constraints(
    request: AnyRequest,
    at: q.AsSeq = None,
    consistency: q.AsConsistency = None,
    min_version: q.AsMinVersion = None,
) -> Response[bytes]:
    """List the constraints by name, with the seq of their declaration (`since`).

    They are declared and dropped by transactions, see `POST /v1/transactions`.
    """
    services = services_of(request)
    client_of(request).must_read(CONSTRAINTS_KEY)
    with await services.reader.snapshot(ReadPoint(at, consistency, min_version)) as snapshot:
        found = snapshot.get(CONSTRAINTS_KEY)
        value = msgspec.Raw(b"{}" if found is None else found.value)
        seq = snapshot.seq
    body = msgspec.json.encode({"seq": seq, "constraints": value})
    return json_response(body, headers={SNAPSHOT_HEADER: str(seq)})
