"""The REST facade: the database over HTTP.

In: requests. Out: transactions appended to `<db>.transactions`, and answers made of their results,
of the read model, and of the changes. It holds nothing that must not be lost: any number of facades
serve one database, and each can be restarted at any time.

Invariants: nothing is said to have failed once it may be in the log; a strong read shows everything
that was in the log when it arrived; the pages of a list show one snapshot; whatever waits is
bounded in number, bytes and time; no key, value or token gets into a log, a metric or an error.

`ports` says what it needs, `kafka` and `kafka_changes` connect that to Kafka, and `testing.memory`
stands in for it in tests. A request comes through `gate`, and by `router` to its row in the table
of `endpoints`, whose function answers: those of `kv`, `transactions`, `changes`, `streams`,
`sql_endpoint`, `operations`, or of `console`. `services` has the parts that they work with:
`reads`, `writes`, `feed`, `health` and others.
"""

from __future__ import annotations

from streamydb.facade.app import create_app
from streamydb.facade.auth import Tokens, load_tokens
from streamydb.facade.server import serve, serve_database
from streamydb.facade.settings import FacadeSettings

__all__ = ["FacadeSettings", "Tokens", "create_app", "load_tokens", "serve", "serve_database"]
