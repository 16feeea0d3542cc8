"""The lease of a checkpoint: it keeps a second pipeline off.

On a file system it is a lock, which ends with its holder. An object store has no locks, but creates
an object only once: the lease is the object `lease/<n>` with the highest number. Its holder renews
it; who finds that nobody does for half a minute creates the next number. So a start after a crash
waits that long.

No clock is compared with another one's. A holder that was halted may write for a moment after it
has lost the lease; docs/decisions.md says why that does no harm.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final, Protocol, Self

import msgspec

from streamydb.errors import ConfigurationError
from streamydb.kafka.connection import StopRequestedError
from streamydb.local.file_lock import HeldLock, lock_at_once
from streamydb.records.formats import UNREADABLE

log = logging.getLogger("streamydb.pipeline")

EXPIRES_S: Final = 30.0
"""How long somebody looks at a lease that nobody renews before it takes the next one."""

LOST_S: Final = 20.0  # how long after its last renewal the holder itself gives the lease up
_RENEW_S: Final = 5.0
_ENDING_S_MAX: Final = 5.0
_LOOK_S: Final = 1.0
_FOLDER: Final = "lease"


class CheckpointTakenError(ConfigurationError):
    """Another pipeline runs on the checkpoint."""


def locked(checkpoint: Path) -> AbstractContextManager[HeldLock]:
    """Lock a checkpoint folder, because two pipelines on one would destroy it.
    Raises CheckpointTakenError: another pipeline runs on it. Raises ConfigurationError: it has no
    locks.
    """
    refusal = _taken(str(checkpoint), "stop it first (`streamydb down`)")
    return lock_at_once(checkpoint / _FOLDER, refusal)


class Objects(Protocol):
    """The objects under a URL."""

    def read(self, name: str) -> bytes | None:
        """Return what an object holds; None: there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Write an object, over one that may be there."""

    def create(self, name: str, data: bytes) -> bool:
        """Write an object that is not there; False: it is."""

    def names(self, folder: str) -> list[str]:
        """Return the last parts of the names of the objects in a folder."""

    def delete(self, name: str) -> None:
        """Delete an object; one that is not there is none to delete."""

    def fetch(self, name: str, path: Path) -> bool:
        """Copy an object into a local file; False: there is none (any more)."""

    def send(self, name: str, path: Path) -> None:
        """Copy a local file into an object, over one that may be there."""


class _LeaseContent(msgspec.Struct, frozen=True):
    """The content of a lease: its holder, how often it was renewed; `released`: it is free."""

    holder: str
    renewals: int
    released: bool = False


class StoreLease:
    """The lease of a checkpoint in an object store; use it as a context manager.

    ``stopped``: waits for so many seconds, and returns whether the pipeline is to stop. ``clock``:
    monotonic, in seconds.
    """

    def __init__(
        self,
        objects: Objects,
        url: str,
        stopped: Callable[[float], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._objects = objects
        self.url = url
        self._stopped = stopped
        self._clock = clock
        self._said = _LeaseContent(f"process {os.getpid()} on {socket.gethostname()}", 0)
        self._number = 0
        self._renewed_s = 0.0
        self._done = threading.Event()
        self._renewing: threading.Thread | None = None
        self._lost: str | None = None

    def __enter__(self) -> Self:
        self.take()
        self._renewing = threading.Thread(
            target=self._renew_on, name="streamydb-lease", daemon=True
        )
        self._renewing.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        if self._renewing is not None:  # or a renewal under way would take the release back
            self._renewing.join(_ENDING_S_MAX)
        with suppress(Exception):
            if self._lost is None:
                self.release()

    @property
    def lost(self) -> str | None:
        """Why the pipeline no longer holds it; None while it does.

        A holder that could not renew it gives it up, however long a request hangs.
        """
        if self._lost is None and self._clock() - self._renewed_s > LOST_S:
            self._lose(f"it could not be renewed for {LOST_S:.0f} s")
        return self._lost

    def take(self) -> None:
        """Take the lease, or wait until that of a dead holder has expired.
        Raises ConfigurationError: another pipeline holds it. Raises StopRequestedError: the
        pipeline is to stop.
        """
        last = self._newest()
        if last:
            self._require_free(last)
        self._number, self._renewed_s = last + 1, self._clock()
        name, said = _name(self._number), msgspec.json.encode(self._said)
        if not self._objects.create(name, said) or self._newest() != self._number:
            raise self._taken("it has just started")
        if self._objects.create(name, said):
            raise ConfigurationError(
                f"the store of {self.url} creates an object twice, so no lease can keep a second "
                "pipeline off: use a store with conditional writes (docs/production.md)"
            )
        for number in self._numbers():
            if number < self._number:
                self._objects.delete(_name(number))

    def renew(self) -> bool:
        """Say that the holder lives; False: another one has taken the lease."""
        if self._newest() > self._number:
            return False
        self._said = msgspec.structs.replace(self._said, renewals=self._said.renewals + 1)
        self._objects.write(_name(self._number), msgspec.json.encode(self._said))
        self._renewed_s = self._clock()
        return True

    def release(self) -> None:
        """Let the next one take it at once."""
        released = msgspec.structs.replace(self._said, released=True)
        self._objects.write(_name(self._number), msgspec.json.encode(released))

    def _require_free(self, number: int) -> None:
        """Return when nobody renews a lease any more."""
        first, until_s = self._objects.read(_name(number)), self._clock() + EXPIRES_S
        said, waits = _decoded(first), False
        while not said.released and self._clock() < until_s:
            if not waits:
                log.info(
                    "the lease of %s is that of %s: waiting %.0f s whether it is renewed",
                    self.url,
                    said.holder,
                    EXPIRES_S,
                )
                waits = True
            if self._stopped(_LOOK_S):
                raise StopRequestedError("told to stop while it started")
            now = self._objects.read(_name(number))
            said = _decoded(now)
            if now != first and not said.released:
                raise self._taken(f"{said.holder} renews the lease")

    def _taken(self, why: str) -> CheckpointTakenError:
        return _taken(self.url, f"{why}; stop it first")

    def _newest(self) -> int:
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        return [int(name) for name in self._objects.names(_FOLDER) if name.isdigit()]

    def _renew_on(self) -> None:
        while not self._done.wait(_RENEW_S):
            try:
                if not self.renew():
                    self._lose("another pipeline has taken it")
            except Exception as error:  # noqa: BLE001 - a store has errors of every kind
                log.warning("the lease of %s cannot be renewed: %s", self.url, _first_line(error))

    def _lose(self, why: str) -> None:
        self._lost = f"the lease of the checkpoint {self.url} is lost: {why}"
        self._done.set()


def _taken(checkpoint: str, what: str) -> CheckpointTakenError:
    return CheckpointTakenError(f"another pipeline runs on the checkpoint {checkpoint}; {what}")


def _name(number: int) -> str:
    return f"{_FOLDER}/{number}"


def _decoded(data: bytes | None) -> _LeaseContent:
    """Return the content of a lease; one that is gone or unreadable is nobody's, and not free."""
    try:
        return msgspec.json.decode(data or b"", type=_LeaseContent)
    except UNREADABLE:
        return _LeaseContent("somebody unknown", 0)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
