"""Constraints on a real broker and a real Spark: declared in the log, enforced, replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamydb.testing.database import Database
from tests.support.programs import cli, put, sent

pytestmark = pytest.mark.timeout(300)


@pytest.mark.long
def test_declared_enforced_and_replayed(tmp_path: Path) -> None:
    with Database(tmp_path) as database:
        sent(database, **put("acct/1", 5))
        declared = '{"name": "balance", "prefix": "acct/", "type": "integer", "min": 0}'
        assert "declared balance at seq 2" in cli(database, "constraints", "declare", declared)
        many = [{"id": f"t{i}", "updates": [{"op": "add", "key": "acct/1", "by": -1},
                 {"op": "add", "key": f"other/{i}", "by": 1}]} for i in range(300)]  # fmt: skip
        database.load(many)
        refused = sent(database, **put("acct/1", "five"))
        assert refused.code == "constraint-violated"
        assert (refused.failed[0].constraint, refused.failed[0].violated) == (
            "balance", "type integer"
        )  # fmt: skip
        assert bytes(sent(database, reads=["acct/1"]).reads["acct/1"]) == b"0"
        rule = {"name": "one", "prefix": "user/", "unique": "$"}
        sent(database, constrain={"declare": rule})
        taken = sent(database, id="ann", **put("user/1", "ann"))  # sent again with what it lacked
        assert (taken.id, taken.status) == ("ann~1", "committed")
        assert sent(database, **put("user/2", "ann")).failed[0].violated == "unique"
        listed = json.loads(cli(database, "constraints", "list", "--json"))
        assert (set(listed), listed["balance"]["since"]) == ({"balance", "one"}, 2)
        cli(database, "constraints", "drop", "balance")
        assert sent(database, **put("acct/1", "five")).status == "committed"
        assert database.assert_serial().transactions > len(many)
