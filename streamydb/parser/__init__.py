"""The parser: turns records of the log, and of the feedback topic, into messages for the shards.

In: the bytes of records. Out: compiled records, each with its keys for every shard and its payload
for its home shard; feedback for its shard and a token of it for the others. `core` routes,
`compile` makes the tables, `scan` is the kernel that reads plain transactions from their bytes.

Invariants: a bad record becomes a row with a reason, never an error; the order of the records is
not looked at.
"""

from __future__ import annotations
