"""Connect again after a cut of a watch or stream, for as long as the options say."""

from __future__ import annotations

from streamydb.client.errors import ClientError
from streamydb.client.requests import Flow, perform
from streamydb.client.session import Retry, Session


class Reconnecting:
    """Counts failures in a row, and pauses after each."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._retry: Retry | None = None

    def succeeded(self) -> None:
        """The next failure is the first again."""
        self._retry = None

    def failed(self, error: ClientError) -> Flow[None]:
        """Pause before the next attempt.
        Raises ClientError: `error`, if it is of no use to try again, or has been for too long.
        """
        self._retry = self._retry or Retry(self._session, self._session.options.reconnect_s)
        if not error.retriable or not self._retry.left_s():
            raise error
        pause = self._retry.again(error)
        if pause is not None:
            yield from perform(pause)
