"""The flows of leases: transactions of a check and an update on one key that ends.

The key of a lease is `lease/<group>/<name>`, its value who holds it and a number that no other
lease has. It ends by itself (`ttl_ms`), at a commit time, so no clock of a client decides who holds
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from streamydb.client import Builder, CheckFailedError
from streamydb_layers.errors import InvalidArgumentError, LeaseHeldError, LeaseLostError, told_by
from streamydb_layers.names import check_id, check_name
from streamydb_layers.steps import AttemptView, Body, Flow, commit, pause, read

TTL_MS_MAX: Final = 86_400_000
"""The longest time for which a lease is given at once, in ms: a day."""

_B = TypeVar("_B", bound=Builder)


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that was acquired.

    Attributes:
        name: of what.
        key: where it is kept; the key is absent while nobody holds it.
        holder: who holds it.
        token: the fencing token: the seq of the transaction that acquired it. Whatever lies outside
            the database refuses a smaller token than the greatest that it has seen.
        ttl_ms: how long it is held after it was acquired or renewed.
        until_s: until when it is surely held, on `time.monotonic` of the process that acquired it:
            ``ttl_ms`` after the request was sent. That clock may stand while the machine sleeps, so
            only `guard` and the token protect.
    """

    name: str
    key: str
    holder: str
    token: int
    ttl_ms: int
    until_s: float
    value: dict[str, Any]

    def guard(self, atomic: _B) -> _B:
        """Let a transaction commit only if the lease holds at its commit time, and return it.

        If it does not, the transaction is aborted: `CheckFailedError` names the `key`.
        """
        return atomic.check(self.key, eq=self.value)


class LeaseCore:
    """The flows of one group of leases."""

    def __init__(self, group: str, clock: Callable[[], float], unique: Callable[[], str]) -> None:
        """Speak of the leases of ``group``.

        ``clock``: seconds. ``unique``: returns what it has never returned.
        """
        self.prefix = f"lease/{check_name(group)}/"
        self._clock, self._unique = clock, unique

    def acquire(
        self, name: str, holder: str, *, ttl_ms: int = 30_000, timeout_s: float = 0.0
    ) -> Flow[Lease]:
        """Acquire a lease; ask again for ``timeout_s`` while somebody holds it.

        Raises:
            LeaseHeldError: somebody holds it.
            InvalidNameError, InvalidArgumentError: the name or a time is out of bounds.
            ForeignValueError: its key has a value that is no lease.
        """
        key = self.prefix + check_id(name)
        value = {"holder": check_id(holder), "lease": self._unique()}
        ends_s, attempt = self._clock() + timeout_s, 0
        put = _putting(key, value, _checked(ttl_ms))
        while True:
            sent_s = self._clock()
            try:
                token = (yield from commit(put)).seq
            except CheckFailedError as error:
                shown = error.failed[0].value  # None if the client may not read it
                other = "somebody" if shown is None else _holder(key, shown)
            else:
                return Lease(name, key, holder, token, ttl_ms, sent_s + ttl_ms / 1000, value)
            if self._clock() >= ends_s:
                raise LeaseHeldError(name, other)
            yield from pause(attempt)
            attempt += 1

    def renew(self, lease: Lease, *, ttl_ms: int | None = None) -> Flow[Lease]:
        """Hold a lease for ``ttl_ms`` from now on, by default as long as it was acquired for.
        Raises LeaseLostError: it is over: released, or not renewed in time.
        """
        ttl_ms = _checked(lease.ttl_ms if ttl_ms is None else ttl_ms)
        sent_s = self._clock()
        try:
            yield from commit(lambda txn: lease.guard(txn).touch(lease.key, ttl_ms=ttl_ms))
        except CheckFailedError:
            raise LeaseLostError(lease.name) from None
        return replace(lease, ttl_ms=ttl_ms, until_s=sent_s + ttl_ms / 1000)

    def release(self, lease: Lease) -> Flow[bool]:
        """End a lease; return False if it was over."""
        try:
            yield from commit(lambda txn: lease.guard(txn).delete(lease.key))
        except CheckFailedError:
            return False
        return True

    def holder(self, name: str) -> Flow[str | None]:
        """Return who holds a lease in the newest snapshot; None: nobody.
        Raises ForeignValueError: its key has a value that is no lease.
        """
        key = self.prefix + check_id(name)
        shown = yield from read([key])
        return None if shown[key] is None else _holder(key, shown[key])

    def require(self, lease: Lease) -> Callable[[AttemptView], Body[None]]:
        """Make a body that raises unless the lease holds (see `Leases.require_in`)."""

        def body(_view: AttemptView) -> Body[None]:
            found = yield [lease.key]
            if found[lease.key] != lease.value:
                raise LeaseLostError(lease.name)

        return body


def _holder(key: str, value: Any) -> str:
    """The holder that the value of a lease's key names."""
    with told_by(key):
        return check_id(value["holder"])


def _putting(key: str, value: dict[str, Any], ttl_ms: int) -> Callable[[Builder], object]:
    return lambda txn: txn.check(key, exists=False).put(key, value, ttl_ms=ttl_ms)


def _checked(ttl_ms: int) -> int:
    if type(ttl_ms) is not int or not 1 <= ttl_ms <= TTL_MS_MAX:
        raise InvalidArgumentError(f"A lease is given for 1 to {TTL_MS_MAX} ms.")
    return ttl_ms
