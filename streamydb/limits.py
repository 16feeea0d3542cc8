"""Limits on everything, in one module, published by ``streamydb limits`` and tested at n and n + 1.

Units are last in the names. The limits of records are part of the contract: a change of one of them
changes which transactions are valid, and so the history that a log stands for.
"""

from __future__ import annotations

import re
from typing import Final

ID_BYTES_MAX: Final = 128
KEY_BYTES_MAX: Final = 480
VALUE_BYTES_MAX: Final = 262_144
KEYS_PER_TRANSACTION_MAX: Final = 10_000
RANGE_KEYS_MAX: Final = 10_000
RANGE_ENTRY_BYTES: Final = 16
TRANSACTION_BYTES_MAX: Final = 900_000
RESULT_BYTES_MAX: Final = 900_000
DEPTH_MAX: Final = 64
FAILED_ENTRIES_MAX: Final = 100
FAILED_VALUE_BYTES_MAX: Final = 1_024
VIOLATED_CHARACTERS_MAX: Final = 512
DEAD_LETTER_PAYLOAD_BYTES_MAX: Final = 65_536
ID_WINDOW_DEFAULT: Final = 1_048_576
# Deadlines pin memory. An hour is enough for a batch job, and for a clock off by a daylight saving.
DEADLINE_AHEAD_MS_MAX: Final = 3_600_000
TTL_MS_MAX: Final = 3_155_760_000_000
PLAN_RECORDS_MAX: Final = 400_000
PLAN_BYTES_MAX: Final = 134_217_728
# Counted by the canonical bytes before the transaction, so that every replay decides alike.
TRANSACTION_VALUES_BYTES_MAX: Final = 67_108_864
PLAN_VALUES_BYTES_MAX: Final = 67_108_864
BLOCK_BYTES_MAX: Final = 8_388_608
LOCK_QUEUE_MAX: Final = 100_000
# Their places are rewritten with the state in every batch.
IN_FLIGHT_MAX: Final = 10_000
PARTITIONS_MAX: Final = 1_024
SHARDS_MAX: Final = 64
FEEDBACK_BLOCK_BYTES_MAX: Final = 800_000
DIGEST_INTERVAL_DEFAULT: Final = 10_000
DIGEST_INTERVAL_MIN: Final = 100
DATABASE_NAME_CHARACTERS_MAX: Final = 48
MODULE_BYTES_MAX: Final = 262_144
PROCEDURE_NAME_CHARACTERS_MAX: Final = 64
PROCEDURE_STEPS_MAX: Final = 200_000
PROCEDURE_DEPTH_MAX: Final = 64
PROCEDURE_INTEGER_BITS_MAX: Final = 4_096
REASON_BYTES_MAX: Final = 1_024
EMITTED_RECORDS_MAX: Final = 1_000
EMITTED_BYTES_MAX: Final = 524_288
WORKFLOW_NAMES_MAX: Final = 64
WORKFLOW_DEPTH_MAX: Final = 16
WORKFLOW_FAN_OUT_MAX: Final = 1_000
WINDOW_ITEMS_MAX: Final = 10_000
CONSTRAINTS_MAX: Final = 256
CONSTRAINT_NAME_CHARACTERS_MAX: Final = 64
CONSTRAINT_STEPS_MAX: Final = 200_000
LOCK_ATTEMPTS_MAX: Final = 8
SCHEMA_NODES_MAX: Final = 1_000
SCHEMA_DEPTH_MAX: Final = 32

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1
INTEGRAL_FLOAT_MAX: Final = 2**53
MARKER_NUMBER_MAX: Final = 2**53 - 1

DESCRIPTIONS: Final[dict[str, str]] = {
    "ID_BYTES_MAX": "UTF-8 bytes of a transaction's id",
    "KEY_BYTES_MAX": "UTF-8 bytes of a key",
    "VALUE_BYTES_MAX": "bytes of a value in canonical JSON",
    "KEYS_PER_TRANSACTION_MAX": "different keys that one transaction touches, and ranges",
    "RANGE_KEYS_MAX": "keys that are in the ranges of one transaction before it, all together",
    "RANGE_ENTRY_BYTES": "bytes that a key in a range of a call counts, beside key and value; all "
    "together may be RESULT_BYTES_MAX",
    "TRANSACTION_BYTES_MAX": "bytes of a transaction record",
    "RESULT_BYTES_MAX": "bytes of a result record (without its duplicate field)",
    "DEPTH_MAX": "nested arrays and objects in a record, itself included",
    "FAILED_ENTRIES_MAX": "failed checks that a result lists",
    "FAILED_VALUE_BYTES_MAX": "bytes of an actual value in a failed check, else left out",
    "VIOLATED_CHARACTERS_MAX": "characters of a broken rule in a failed check, cut there if the "
    "result would be too large",
    "DEAD_LETTER_PAYLOAD_BYTES_MAX": "bytes of a bad record that its dead letter keeps",
    "ID_WINDOW_DEFAULT": "transactions during which an id is remembered",
    "DEADLINE_AHEAD_MS_MAX": "farthest deadline of a transaction after its commit time (ms)",
    "TTL_MS_MAX": "longest time from a commit to the end of what it wrote (ms): 100 years",
    "PLAN_RECORDS_MAX": "records released into one plan",
    "PLAN_BYTES_MAX": "bytes of the records released into one plan",
    "TRANSACTION_VALUES_BYTES_MAX": "bytes of the values, before it, of all keys that one "
    "transaction touches",
    "PLAN_VALUES_BYTES_MAX": "bytes of the values that one plan touches, and that one partition of "
    "it makes by appends and calls, if it has more than one transaction",
    "BLOCK_BYTES_MAX": "bytes of values in one block between stages, or part of a blob, about",
    "LOCK_QUEUE_MAX": "places in a shard's lock queues at which nothing more is released",
    "IN_FLIGHT_MAX": "transactions released and not resolved (grouping=single)",
    "PARTITIONS_MAX": "partitions of the transactions topic",
    "SHARDS_MAX": "shards of a database",
    "FEEDBACK_BLOCK_BYTES_MAX": "bytes of one feedback block",
    "DIGEST_INTERVAL_DEFAULT": "transactions from one digest of the state to the next",
    "DIGEST_INTERVAL_MIN": "fewest transactions from one digest to the next",
    "DATABASE_NAME_CHARACTERS_MAX": "characters of a database's name",
    "MODULE_BYTES_MAX": "bytes of a module of stored procedures",
    "PROCEDURE_NAME_CHARACTERS_MAX": "characters of a module's and of a procedure's name, each",
    "PROCEDURE_STEPS_MAX": "steps of one call of a stored procedure",
    "PROCEDURE_DEPTH_MAX": "calls within calls, and nesting of the data, in a stored procedure",
    "PROCEDURE_INTEGER_BITS_MAX": "bits of an integer that a stored procedure computes with",
    "REASON_BYTES_MAX": "bytes of the reason in a result, cut there",
    "EMITTED_RECORDS_MAX": "records that one transaction emits to streams",
    "EMITTED_BYTES_MAX": "bytes of all that one transaction emits to streams",
    "WORKFLOW_NAMES_MAX": "streams, and windows, of one workflow, each",
    "WORKFLOW_DEPTH_MAX": "follow-ups of follow-ups",
    "WORKFLOW_FAN_OUT_MAX": "follow-ups that one transaction may lead to in all, by the graph",
    "WINDOW_ITEMS_MAX": "items of a window, staged ones included",
    "CONSTRAINTS_MAX": "integrity constraints of a database",
    "CONSTRAINT_NAME_CHARACTERS_MAX": "characters of a constraint's name",
    "CONSTRAINT_STEPS_MAX": "steps of judging one value by one JSON Schema",
    "LOCK_ATTEMPTS_MAX": "attempts to learn the locks of a transaction before it is given up",
    "SCHEMA_NODES_MAX": "schemas within one JSON Schema, itself included",
    "SCHEMA_DEPTH_MAX": "schemas nested in one JSON Schema",
    "INTEGER_MIN": "smallest integer",
    "INTEGER_MAX": "largest integer",
    "INTEGRAL_FLOAT_MAX": "largest magnitude of a float that is stored as an integer",
    "MARKER_NUMBER_MAX": "largest number of an epoch marker (ms)",
}

LIMITS: Final[dict[str, int]] = {name: globals()[name] for name in DESCRIPTIONS}
"""Every limit by name."""


def max_offsets(shards: int) -> int:
    """Most transactions that a micro-batch reads unless told otherwise.

    Several shards have more stages, so larger micro-batches to spread their cost over.
    """
    return 200_000 if shards == 1 else 400_000


DATABASE_NAME: Final = re.compile(rf"[a-z][a-z0-9-]{{0,{DATABASE_NAME_CHARACTERS_MAX - 1}}}")
"""What a database may be called; the whole name must match."""

PIPELINE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
"""What a pipeline may be called; the whole name must match."""

PIPELINE_NAME_RULE = "take at most 32 lower-case letters, digits and hyphens, no hyphen first"
"""The same, said to people."""

STANDBY: Final = "standby"
"""What a standby is called when nobody says otherwise."""
