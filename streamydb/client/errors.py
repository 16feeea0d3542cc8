"""The client's exceptions: `ClientError`, and below it one class for each way to fail.

`ClientError`
- `ClientConfigurationError`: no client can be made
- `NotConnectedError`, `ConnectionLostError`, `UnexpectedAnswerError`, `ClosedError`: the connection
- `OutcomeUnknownError`: a transaction may be in the log, and its verdict did not come in time
- `UnsafeScanError`: a function under `run` wrote, and scanned a range without an end
- `RequestError`: the facade said no (`problems`, one class for each problem type); among them
  `AbortedError` (one class below it for each reason code, `CheckFailedError` for one)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from streamydb.errors import ConfigurationError, StreamyError
from streamydb.records.problems import PROBLEMS


class ClientError(StreamyError):
    """Base of all that the client raises.

    Attributes:
        retriable: the same request may succeed a moment later; the client has tried that already.
        uncertain: a transaction that was sent may have been appended nevertheless.
        retry_after_s: how long the other side asks to be left alone.
    """

    retriable: bool = False
    uncertain: bool = False
    retry_after_s: float = 0


class ClientConfigurationError(ClientError, ConfigurationError):
    """The arguments of `connect`, or variables of the environment, make no sense."""


_HURRIED: Final = frozenset({408, 425, 429})
"""Refusals that pass: too slow, too early, too many."""


class ClosedError(ClientError):
    """The client was closed, or the view belongs to a function that has ended."""


class NotConnectedError(ClientError):
    """No connection could be made; nothing was sent."""

    def __init__(self, detail: str, *, retriable: bool = True) -> None:
        super().__init__(detail)
        self.retriable = retriable


class ConnectionLostError(ClientError):
    """The connection broke, or no answer came in time."""

    retriable = True
    uncertain = True


class UnexpectedAnswerError(ClientError):
    """The answer does not come from a facade, but perhaps from a proxy in between.

    One that says no (4xx) did not pass the request on, or would say the same again, unless it was
    in a hurry.

    Attributes:
        status: its HTTP status.
    """

    def __init__(self, detail: str, status: int) -> None:
        super().__init__(detail)
        self.status = status
        self.retriable = status >= 500 or status in _HURRIED
        self.uncertain = self.retriable or status < 300


class UnsafeScanError(ClientError):
    """A function under `run` wrote, and scanned a range without end or the database's own keys."""


class OutcomeUnknownError(ClientError):
    """A transaction may be in the log, and its verdict did not come in time.

    Attributes:
        id: its id, of the last attempt that this client has sent.
        payload: its bytes; empty if this client does not know them.
        ask: looks for the verdict again: returns a `Committed` or raises, as the first call would
            have. With an `AsyncClient`, await what it returns.
        send_again: sends the same bytes again, which has the effect of sending them once, and
            returns or raises the same; without bytes, as `ask`. Await it likewise.
    """

    uncertain = True
    ask: Callable[[], Any]
    send_again: Callable[[], Any]

    def __init__(self, txn_id: str, payload: bytes) -> None:
        super().__init__(
            f"the verdict of transaction {txn_id} did not come in time: it may be committed or "
            "aborted later, or never have been appended; ask again, or send the same bytes again"
        )
        self.id = txn_id
        self.payload = payload


KINDS: Final[dict[str, type[RequestError]]] = {}
"""Slug of a problem type -> its class; each class enters itself."""


class RequestError(ClientError):
    """The request was refused: a problem of the facade, of a type that has no class of its own.

    Attributes:
        slug: the problem type (`/problems/<slug>` of a facade describes it).
        status: the HTTP status.
        detail: what happened and what to do.
        code: the reason code of the verdict, if there is one.
        id: the transaction's id, if there is one.
        members: all further members of the answer.
    """

    slug: str = ""
    status: int = 0

    def __init_subclass__(cls, *, problem: str | None = None, **others: Any) -> None:
        super().__init_subclass__(**others)
        if problem is not None:
            kind = PROBLEMS[problem]
            cls.slug, cls.status = kind.slug, kind.status
            cls.retriable, cls.uncertain = kind.retriable, kind.uncertain
            KINDS[problem] = cls

    def __init__(
        self, detail: str, *, retry_after_s: float = 0, members: Mapping[str, Any] | None = None
    ) -> None:
        self.members = dict(members or {})
        self.code: str | None = self.members.get("code")
        super().__init__(f"{self.code or self.slug or self.status}: {detail}")
        self.detail = detail
        self.id: str | None = self.members.get("id")
        self.retry_after_s = retry_after_s
