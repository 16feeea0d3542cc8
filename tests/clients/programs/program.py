"""The tour of a facade with the client that openapi-generator makes for Python."""

from __future__ import annotations

import json
import sys
from typing import Any

import generated as g  # type: ignore[import-not-found]  # made by the test


def changes(api: g.DefaultApi, count: int) -> list[list[Any]]:
    """The first changes of the accounts: events of a stream, which ends when it is closed."""
    found: list[list[Any]] = []
    answer = api.get_changes_without_preload_content(since=0, prefix="acct/")
    rest = b""
    while len(found) < count:
        rest += answer.read1(65536)
        *events, rest = rest.split(b"\n\n")
        for event in events:
            fields = dict(line.split(b": ", 1) for line in event.splitlines() if b": " in line)
            if fields.get(b"event") == b"change":
                change = g.Change.from_json(fields[b"data"].decode())
                found.append([change.key, change.after])
    answer.close()
    return found


def main(url: str) -> None:
    """Go through it, print what was seen."""
    api = g.DefaultApi(g.ApiClient(g.Configuration(host=url)))
    first = api.put_value("acct/a b", 100)
    api.put_value("acct/2", {"owner": "ann"})
    got = api.get_value("acct/a b")
    made = api.post_transaction(
        g.Transaction(
            checks=[g.Check(key="acct/a b", version=first.seq, ge=g.Operand(1))],
            updates=[
                g.Update(g.AddUpdate(op="add", key="acct/a b", by=-30, min=0)),
                g.Update(g.PutUpdate(op="put", key="order/1", value="open")),
            ],
            reads=[g.Read("acct/a b")],
        )
    )
    again = g.Check(key="order/1", exists=False)
    refused = api.post_transaction(g.Transaction(checks=[again]))
    reading = api.read_values(g.ReadRequest(keys=["acct/a b", "nothing"]))
    page = api.list_values(prefix="acct/", limit=1)
    rest = api.list_values(cursor=page.cursor)
    try:
        api.get_value("nothing")
    except g.ApiException as error:
        problem = g.ProblemDetails.from_json(error.body)
    seen = {
        "got": got,
        "reads": made.reads,
        "refused": [refused.status, refused.code, refused.failed[0].key],
        "absent": reading.entries["nothing"] is None,
        "keys": [entry.key for entry in [*page.entries, *rest.entries]],
        "problem": [problem.status, problem.type],
        "changes": changes(api, 3),
    }
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
