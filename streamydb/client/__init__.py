"""The Python client: transactions on a database from any program.

    with streamydb.connect("http://127.0.0.1:8080") as client:
        client.put("greeting", "hello")

In: calls. Out: requests to a facade over HTTP, or appends to Kafka and reads of a local read model.
`requests` says what the core asks of a transport. `core`, `reads`, `attempts`, `calls` and
`watch_core` are the core: generators without I/O. `awaiting` drives them and carries the requests
over HTTP; `blocking` makes a method for threads of each of its methods. `facade.direct` carries
them to Kafka, and `streamydb.testing` has a database in memory behind either transport.

Invariants: a transaction's id and bytes are fixed before it is first sent, so that sending again
never executes it twice; a transaction that may be in the log is never reported as failed; a
function under `run` sees one snapshot and commits only if that still held; a watch has no gap and
no repetition;
a session never reads a state older than what it has seen.
"""

from __future__ import annotations

from streamydb.client.awaiting.client import AsyncClient
from streamydb.client.awaiting.views import AsyncAtomic, AsyncView, AsyncWatch
from streamydb.client.blocking.client import Atomic, Client, View, Watch
from streamydb.client.blocking.transports import drive
from streamydb.client.connector import connect, connect_async
from streamydb.client.core import drive as drive_async
from streamydb.client.errors import (
    ClientConfigurationError,
    ClientError,
    ClosedError,
    ConnectionLostError,
    NotConnectedError,
    OutcomeUnknownError,
    RequestError,
    UnexpectedAnswerError,
    UnsafeScanError,
)
from streamydb.client.problems import (
    AbortedError,
    AnswerTooLargeError,
    BatchEarlyError,
    BatchRepeatedError,
    BodyTimeoutError,
    BoundViolatedError,
    BudgetExceededError,
    CheckFailedError,
    ConflictError,
    ConstraintRefusedError,
    ConstraintViolatedError,
    CrossOriginError,
    DeadlinePassedError,
    ExecutionFailedError,
    ExpectationFailedError,
    FailedCheck,
    FollowUpRefusedError,
    ForbiddenError,
    HeadersTooLargeError,
    IdReusedError,
    InternalError,
    InvalidJsonError,
    InvalidKeyError,
    InvalidParameterError,
    InvalidTransactionError,
    KeyNotFoundError,
    LogUnavailableError,
    MethodNotAllowedError,
    MisdirectedError,
    NoSuchEndpointError,
    NoSuchStreamError,
    NotAListError,
    NotANumberError,
    NotReadyError,
    NotTheOwnerError,
    NumberOverflowError,
    OtherGenerationError,
    OverloadedError,
    PrivateKeyError,
    ProcedureAbortedError,
    ProcedureFailedError,
    QueriesOffError,
    QueryCostlyError,
    QueryInvalidError,
    RangeTooLargeError,
    ReadModelBehindError,
    ResultTooLargeError,
    SlowReaderError,
    SnapshotGoneError,
    TooLargeError,
    TooManyRequestsError,
    TransactionUnknownError,
    UnauthorizedError,
    UndeclaredKeyError,
    UnknownProcedureError,
    UnknownStreamError,
    UnsupportedMediaTypeError,
    UriTooLongError,
    ValuesTooLargeError,
    ValueTooLargeError,
    VerdictUnknownError,
)
from streamydb.client.requests import Change, Consistency, Entry, Snapshot
from streamydb.client.session import Options, Session, new_id
from streamydb.client.statements import SqlResult
from streamydb.client.transactions import Builder, Committed, Prepared, RangeEntry, prepare
from streamydb.records.emission import Emitted
from streamydb.records.formats import UNREADABLE
from streamydb.records.ranges import Range, first_behind
from streamydb.records.table import Table
from streamydb.records.values import canonical, decode_value

__all__ = [
    "UNREADABLE", "AbortedError", "AnswerTooLargeError", "AsyncAtomic", "AsyncClient", "AsyncView",
    "AsyncWatch", "Atomic", "BatchEarlyError", "BatchRepeatedError", "BodyTimeoutError",
    "BoundViolatedError", "BudgetExceededError", "Builder", "Change", "CheckFailedError", "Client",
    "ClientConfigurationError", "ClientError", "ClosedError", "Committed", "ConflictError",
    "ConnectionLostError", "Consistency", "ConstraintRefusedError", "ConstraintViolatedError",
    "CrossOriginError", "DeadlinePassedError", "Emitted", "Entry", "ExecutionFailedError",
    "ExpectationFailedError", "FailedCheck", "FollowUpRefusedError", "ForbiddenError",
    "HeadersTooLargeError", "IdReusedError", "InternalError", "InvalidJsonError", "InvalidKeyError",
    "InvalidParameterError", "InvalidTransactionError", "KeyNotFoundError", "LogUnavailableError",
    "MethodNotAllowedError", "MisdirectedError", "NoSuchEndpointError", "NoSuchStreamError",
    "NotAListError", "NotANumberError", "NotConnectedError", "NotReadyError", "NotTheOwnerError",
    "NumberOverflowError", "Options", "OtherGenerationError", "OutcomeUnknownError",
    "OverloadedError", "Prepared", "PrivateKeyError", "ProcedureAbortedError",
    "ProcedureFailedError", "QueriesOffError", "QueryCostlyError", "QueryInvalidError", "Range",
    "RangeEntry", "RangeTooLargeError", "ReadModelBehindError", "RequestError",
    "ResultTooLargeError", "Session", "SlowReaderError", "Snapshot", "SnapshotGoneError",
    "SqlResult", "Table", "TooLargeError", "TooManyRequestsError", "TransactionUnknownError",
    "UnauthorizedError", "UndeclaredKeyError", "UnexpectedAnswerError", "UnknownProcedureError",
    "UnknownStreamError", "UnsafeScanError", "UnsupportedMediaTypeError", "UriTooLongError",
    "ValueTooLargeError", "ValuesTooLargeError", "VerdictUnknownError", "View", "Watch",
    "canonical", "connect", "connect_async", "decode_value", "drive", "drive_async", "first_behind",
    "new_id", "prepare",
]  # fmt: skip
