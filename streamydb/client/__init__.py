"""The Python client: transactions on a database from any program.

    with streamydb.connect("http://127.0.0.1:8080") as client:
        client.put("greeting", "hello")

In: calls. Out: requests to a facade over HTTP, or appends to Kafka and reads of a local read model.
`requests` says what the core asks of a transport; `core`, `attempts` and `watching` are the core,
generators without I/O; `blocking` and `awaiting` drive them; `httpx_transports` and `direct` carry
the requests. `testing` has a database in memory behind either transport.

Invariants: a transaction's id and bytes are fixed before it is first sent, so that sending again
never executes it twice; nothing is said to have failed once it may be in the log; a function under
`run` sees one snapshot and commits only if that still held; a watch has no gap and no repetition;
a session never reads a state older than what it has seen.
"""

from __future__ import annotations

from streamydb.client.awaiting import AsyncAtomic, AsyncClient, AsyncView, AsyncWatch
from streamydb.client.blocking import Atomic, Client, View, Watch
from streamydb.client.connecting import connect, connect_async
from streamydb.client.errors import (
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
    BodyTimeoutError,
    BoundViolatedError,
    BudgetExceededError,
    CheckFailedError,
    ConflictError,
    ConstraintRefusedError,
    ConstraintViolatedError,
    CrossOriginError,
    ExecutionFailedError,
    FailedCheck,
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
    NotAListError,
    NotANumberError,
    NotReadyError,
    NumberOverflowError,
    OverloadedError,
    ProcedureAbortedError,
    ProcedureFailedError,
    QueriesOffError,
    QueryCostlyError,
    QueryInvalidError,
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
    UriTooLongError,
    ValueTooLargeError,
    VerdictUnknownError,
)
from streamydb.client.requests import Change, Consistency, Entry
from streamydb.client.session import Options, Session
from streamydb.client.snapshots import Snapshot
from streamydb.client.transactions import Committed, Prepared
from streamydb.sql.table import Table

__all__ = [
    "AbortedError",
    "AnswerTooLargeError",
    "AsyncAtomic",
    "AsyncClient",
    "AsyncView",
    "AsyncWatch",
    "Atomic",
    "BodyTimeoutError",
    "BoundViolatedError",
    "BudgetExceededError",
    "Change",
    "CheckFailedError",
    "Client",
    "ClientError",
    "ClosedError",
    "Committed",
    "ConflictError",
    "ConnectionLostError",
    "Consistency",
    "ConstraintRefusedError",
    "ConstraintViolatedError",
    "CrossOriginError",
    "Entry",
    "ExecutionFailedError",
    "FailedCheck",
    "ForbiddenError",
    "HeadersTooLargeError",
    "IdReusedError",
    "InternalError",
    "InvalidJsonError",
    "InvalidKeyError",
    "InvalidParameterError",
    "InvalidTransactionError",
    "KeyNotFoundError",
    "LogUnavailableError",
    "MethodNotAllowedError",
    "MisdirectedError",
    "NoSuchEndpointError",
    "NotAListError",
    "NotANumberError",
    "NotConnectedError",
    "NotReadyError",
    "NumberOverflowError",
    "Options",
    "OutcomeUnknownError",
    "OverloadedError",
    "Prepared",
    "ProcedureAbortedError",
    "ProcedureFailedError",
    "QueriesOffError",
    "QueryCostlyError",
    "QueryInvalidError",
    "ReadModelBehindError",
    "RequestError",
    "ResultTooLargeError",
    "Session",
    "SlowReaderError",
    "Snapshot",
    "SnapshotGoneError",
    "Table",
    "TooLargeError",
    "TooManyRequestsError",
    "TransactionUnknownError",
    "UnauthorizedError",
    "UndeclaredKeyError",
    "UnexpectedAnswerError",
    "UnknownProcedureError",
    "UnsafeScanError",
    "UriTooLongError",
    "ValueTooLargeError",
    "VerdictUnknownError",
    "View",
    "Watch",
    "connect",
    "connect_async",
]
