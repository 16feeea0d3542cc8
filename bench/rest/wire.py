"""HTTP/1.1 as far as a load generator needs it: whole answers out of bytes, and nothing else."""

from __future__ import annotations

from typing import Final, NamedTuple

from bench.errors import BenchError

__all__ = ["Answer", "AnswerParser"]

_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length:"


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes


class AnswerParser:
    """Finds the answer in what a connection receives; one request is under way at a time."""

    def __init__(self) -> None:
        """Nothing has been received."""
        self._data = b""
        self._status = 0
        self._body = 0
        self._size = 0

    def feed(self, data: bytes) -> Answer | None:
        """Take what was received; return the answer when it is whole.

        Raises:
            BenchError: it is no answer, or one without a length.
        """
        data = self._data = self._data + data if self._data else data
        if not self._size:
            end = data.find(_END)
            if end < 0:
                return None
            self._begin(data[:end].lower(), end)
        if len(data) < self._size:
            return None
        if len(data) > self._size:
            raise BenchError("the server sent more than one answer to one request")
        answer = Answer(self._status, data[self._body :])
        self._data, self._size = b"", 0
        return answer

    def _begin(self, head: bytes, end: int) -> None:
        """Read status and length."""
        at = head.find(_LENGTH)
        try:
            self._status = int(head[9:12])
            start = at + len(_LENGTH)
            length = 0 if at < 0 else int(head[start:].split(b"\r\n", 1)[0])
        except ValueError:
            raise BenchError(f"no answer of HTTP/1.1: {head[:60]!r}") from None
        if at < 0 and self._status not in {204, 304}:
            raise BenchError("an answer without Content-Length cannot be measured here")
        self._body = end + len(_END)
        self._size = self._body + length
