"""The records on the wire and their codecs, one file per record (docs/semantics.md).

Everything here is pure: bytes in, structs out, and back. Reason codes are in ``streamydb.errors``,
limits in ``streamydb.limits``, and the JSON Schemas made from both in ``docs/schemas``.
"""

from __future__ import annotations

from streamydb.records.change import (
    Change,
    ChangeName,
    ChangeOrigin,
    ChangeTransaction,
    Resolved,
    change_name,
    decode_change,
    encode_change,
    encode_resolved,
    is_strange_change,
)
from streamydb.records.deadletter import (
    DeadLetter,
    dead_letter,
    dead_letter_key,
    decode_dead_letter,
    encode_dead_letter,
)
from streamydb.records.deadline import deadline_span, identity, with_deadline
from streamydb.records.decoder import decode, keys, module_key
from streamydb.records.expiry import EXPIRY_ID, Expiring, end_of
from streamydb.records.marker import Marker, decode_marker, encode_marker
from streamydb.records.names import CONSTRAINTS_KEY, UNIQUE_PREFIX
from streamydb.records.rejection import Rejection
from streamydb.records.result import (
    Duplicate,
    Failed,
    Result,
    Source,
    decode_result,
    encode_result,
    is_strange_result,
    seq_in,
)
from streamydb.records.transaction import (
    Add,
    Append,
    Call,
    Check,
    Delete,
    Deploy,
    Max,
    Min,
    NextId,
    Put,
    TakenBatch,
    Touch,
    Transaction,
    Update,
)
from streamydb.records.values import canonical, canonical_number, decode_value, is_number

__all__ = [
    "CONSTRAINTS_KEY", "EXPIRY_ID", "UNIQUE_PREFIX", "Add", "Append", "Call", "Change",
    "ChangeName", "ChangeOrigin", "ChangeTransaction", "Check", "DeadLetter", "Delete",
    "Deploy", "Duplicate", "Expiring", "Failed", "Marker", "Max", "Min", "NextId", "Put",
    "Rejection", "Resolved", "Result", "Source", "TakenBatch", "Touch", "Transaction", "Update",
    "canonical", "canonical_number", "change_name", "dead_letter", "dead_letter_key",
    "deadline_span", "decode", "decode_change", "decode_dead_letter", "decode_marker",
    "decode_result", "decode_value", "encode_change", "encode_dead_letter", "encode_marker",
    "encode_resolved", "encode_result", "end_of", "identity", "is_number", "is_strange_change",
    "is_strange_result", "keys", "module_key", "seq_in", "with_deadline",
]  # fmt: skip
