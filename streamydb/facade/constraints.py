"""`/v1/constraints`: the constraints that hold."""

from __future__ import annotations

import msgspec

from streamydb.facade.answer import Answer, json_answer
from streamydb.facade.kv_reads import SNAPSHOT_HEADER
from streamydb.facade.queries import ReadQuery, point_of
from streamydb.facade.request import Request
from streamydb.records import CONSTRAINTS_KEY


async def get_constraints(request: Request, query: ReadQuery) -> Answer:
    """List the constraints by name, with the seq of their declaration (`since`).

    They are declared and dropped by transactions, see `POST /v1/transactions`.
    """
    with await request.services.reader.snapshot(point_of(query)) as snapshot:
        found = snapshot.get(CONSTRAINTS_KEY)
        value = msgspec.Raw(b"{}" if found is None else found.value)
        seq = snapshot.seq
    body = msgspec.json.encode({"seq": seq, "constraints": value})
    return json_answer(body, headers={SNAPSHOT_HEADER: str(seq)})
