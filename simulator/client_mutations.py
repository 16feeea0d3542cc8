"""Break client and facade on purpose; the simulation of clients must notice each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from unittest import mock

import msgspec

from streamydb.client import attempts, core, errors, session, transactions
from streamydb.client.requests import Send
from streamydb.facade import reads
from streamydb.verify.oracle import core as oracle

__all__ = ["CLIENT_MUTATIONS"]

_GIVES_UP_AFTER: Final = 8


def _give_up_after_some_attempts() -> Any:
    """Retries: a number of attempts ends a call, whatever time is left."""
    original = session.Retry.again
    failures: dict[int, int] = {}

    def again(self: Any, fault: Any) -> Any:
        if fault is not None:
            failures[id(self)] = failures.get(id(self), 0) + 1
            if failures[id(self)] >= _GIVES_UP_AFTER:
                del failures[id(self)]
                return None
        return original(self, fault)

    return mock.patch.object(session.Retry, "again", again)


def _new_id_each_time() -> Any:
    """Retries: a transaction is sent again under another id."""
    count = iter(range(1 << 62))

    def send(txn_id: str, payload: bytes, timeout_s: float) -> Send:
        fresh = f"{txn_id}-{next(count)}"
        txn = msgspec.json.decode(payload)
        return Send(fresh, msgspec.json.encode({**txn, "id": fresh}), timeout_s)

    return mock.patch.object(core, "Send", send)


def _certain_that_nothing_happened() -> Any:
    """Retries: a lost connection is taken for a transaction that was not appended."""
    return mock.patch.object(errors.ConnectionLostError, "uncertain", new=False)


def _run_again_when_unknown() -> Any:
    """Functions: a commit of unknown outcome counts as a conflict, and the function runs again."""
    original = attempts._commit  # noqa: SLF001 - breaking what is private is the point

    def commit(attempt: Any) -> Any:
        try:
            return (yield from original(attempt))
        except errors.OutcomeUnknownError as error:
            return error

    return mock.patch.object(attempts, "_commit", commit)


def _commit_unchecked() -> Any:
    """Functions: what was read is not checked at the commit."""
    original = transactions.prepare

    def prepare(txn_id: str, **parts: Any) -> Any:
        return original(txn_id, **{**parts, "checks": []})

    return mock.patch.object(attempts, "prepare", prepare)


def _send_after_the_time() -> Any:
    """Retries: a call goes on for as long as it fails."""
    original = session.Retry.again

    def again(self: Any, fault: Any) -> Any:
        self._until += 10 if fault is not None and not self.left_s() else 0
        return original(self, fault)

    return mock.patch.object(session.Retry, "again", again)


def _wait_for_control_records() -> Any:
    """Reads: a strong read waits until the end of the log is covered, whatever lies before it."""
    return mock.patch.object(reads.Coverage, "look", return_value=None)


def _set_no_deadline() -> Any:
    """Retries: transactions have no deadline, so that late copies find their ids forgotten."""
    return mock.patch.object(session.Session, "deadline_ms", return_value=None)


def _believe_a_late_copy() -> Any:
    """Deadlines: a copy that is refused stands for all copies of its transaction."""
    return mock.patch.object(core, "UNTIMELY", frozenset())


def _forget_at_the_window() -> Any:
    """Deadlines: the database forgets ids at the window, whatever their deadlines."""

    def is_remembered(self: Any, seen: Any, place: Any) -> bool:
        return bool(seen.seq > place.seq - self.id_window)

    return mock.patch.object(oracle.Oracle, "_is_remembered", is_remembered)


def _execute_after_the_deadline() -> Any:
    """Deadlines: the database executes what comes too late."""
    return mock.patch.object(oracle, "untimely", return_value=None)


CLIENT_MUTATIONS: Final[Mapping[str, Callable[[], Any]]] = {
    "client-gives-up": _give_up_after_some_attempts,
    "client-new-id": _new_id_each_time,
    "client-certain": _certain_that_nothing_happened,
    "client-runs-again": _run_again_when_unknown,
    "client-unchecked": _commit_unchecked,
    "client-too-long": _send_after_the_time,
    "client-deadline": _set_no_deadline,
    "client-late-copy": _believe_a_late_copy,
    "database-forgets": _forget_at_the_window,
    "database-late": _execute_after_the_deadline,
    "reads-control": _wait_for_control_records,
}
"""Mutations of the client by name."""
