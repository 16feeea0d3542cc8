"""Bounds on work under way: counted in total, for each client, and in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from streamydb.facade.problems import ProblemError

_RETRY_AFTER_S = 1


class Limiter:
    """A bound on the number of things under way at once."""

    def __init__(self, what: str, total_max: int, client_max: int | None = None) -> None:
        self._what = what
        self._total_max = total_max
        self._client_max = client_max
        self._clients: Counter[str] = Counter()
        self.total = 0

    @contextmanager
    def enter(self, client: str = "") -> Iterator[None]:
        """Count a client within a block. Raises ProblemError: too-many-requests or overloaded."""
        self.check(client)
        self.total += 1
        if self._client_max is not None:
            self._clients[client] += 1
        try:
            yield
        finally:
            self.total -= 1
            if self._client_max is not None:
                self._clients[client] -= 1
                if not self._clients[client]:
                    del self._clients[client]

    def check(self, client: str = "") -> None:
        """Refuse what `enter` would refuse now. Raises ProblemError: as `enter`."""
        if self._client_max is not None and self._clients.get(client, 0) >= self._client_max:
            raise self._full("too-many-requests", f"This client has {self._client_max}")
        if self.total >= self._total_max:
            raise self._full("overloaded", f"There are {self._total_max}")

    def _full(self, slug: str, count: str) -> ProblemError:
        detail = f"{count} {self._what} under way, the most that are taken; try again later."
        return ProblemError(slug, detail, retry_after_s=_RETRY_AFTER_S)


class Budget:
    """A bound on the bytes of request bodies that are held at once."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0


class Reservation:
    """The bytes of a budget that one request's body takes, until `end`."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._bytes = 0

    def grow(self, count: int) -> None:
        """Hold more bytes. Raises ProblemError: overloaded, when there is no room."""
        if self._budget.held + count > self._budget.bytes_max:
            detail = "The bodies of other requests take all the memory there is for them."
            raise ProblemError("overloaded", detail, retry_after_s=_RETRY_AFTER_S)
        self._budget.held += count
        self._bytes += count

    def end(self) -> None:
        """Hold nothing any more."""
        self._budget.held -= self._bytes
        self._bytes = 0
