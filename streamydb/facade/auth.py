"""Tokens: who sends a request, and which keys it may touch.

Tokens are a JSON list, from a file or the environment:

    [{"name": "billing", "token": "a long random text", "read": ["acct/"], "write": ["acct/"]},
     {"name": "admin", "sha256": "<hex digest of the token>", "read": [""], "write": [""]}]

A scope is a prefix of keys; the empty prefix is all keys. Only digests are kept. Comparison takes
the same time for every token that is wrong.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from streamydb.errors import ConfigurationError
from streamydb.facade.problems import ProblemError
from streamydb.facade.settings import FacadeSettings
from streamydb.records.formats import UNREADABLE

# A shorter token could be guessed.
_TOKEN_CHARACTERS_MIN: Final = 16
_TOKENS_MAX: Final = 1_000


class Caller:
    """The sender of a request; logs and limits know it by its `name`, never by its token."""

    def __init__(self, name: str, read: Iterable[str] = (), write: Iterable[str] = ()) -> None:
        self.name = name
        self._read = tuple(read)
        self._write = tuple(write)
        self.may_everything = "" in self._read and "" in self._write

    @property
    def scopes(self) -> dict[str, list[str]]:
        return {"read": list(self._read), "write": list(self._write)}

    def may_read(self, key: str) -> bool:
        """Return True for a key, or for all keys with a prefix, in the scopes."""
        return key.startswith(self._read)

    def may_read_all(self, keys: Iterable[str]) -> bool:
        return "" in self._read or all(map(self.may_read, keys))

    def may_write(self, key: str) -> bool:
        return key.startswith(self._write)

    def must_read(self, key: str) -> None:
        if not self.may_read(key):
            raise _forbidden("read")

    def must_read_all(self, keys: Iterable[str]) -> None:
        if not self.may_read_all(keys):
            raise _forbidden("read")

    def must_write(self, key: str) -> None:
        if not self.may_write(key):
            raise _forbidden("write")


ANYBODY: Final = Caller("anybody", [""], [""])
"""The client of a facade without tokens."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    read: list[str] = []
    write: list[str] = []
    token: str | None = None
    sha256: str | None = None


class Tokens:
    """The tokens of a facade; none of them means that everybody may do everything."""

    def __init__(self, clients: Iterable[tuple[bytes, Caller]] = ()) -> None:
        self._clients = tuple(clients)

    def __bool__(self) -> bool:
        return bool(self._clients)

    def identify(self, authorization: str | None) -> Caller:
        """Return the client of a header `Authorization`. Raises ProblemError: unauthorized."""
        if not self._clients:
            return ANYBODY
        scheme, _, token = (authorization or "").partition(" ")
        digest = hashlib.sha256(token.strip().encode("latin-1")).digest()  # the bytes as sent
        caller = None
        for known, client in self._clients:  # all of them, whichever it is
            if hmac.compare_digest(known, digest):
                caller = client
        if caller is None or scheme.lower() != "bearer":
            raise ProblemError(
                "unauthorized",
                "Send a token: `Authorization: Bearer ...`.",
                headers={"WWW-Authenticate": 'Bearer realm="streamydb"'},
            )
        return caller


def load_tokens(settings: FacadeSettings) -> Tokens:
    """Return the tokens that the settings name.
    Raises ConfigurationError: they cannot be read; the message never holds a part of them.
    """
    if settings.tokens is not None:
        where, data = "STREAMYDB_SERVE_TOKENS", settings.tokens.get_secret_value().encode()
    elif settings.tokens_file is not None:
        where, data = str(settings.tokens_file), _read(settings.tokens_file)
    else:
        return Tokens()
    try:
        entries = msgspec.json.decode(data, type=list[_Entry])
    except UNREADABLE:
        form = '[{"name": ..., "token": ..., "read": [prefix], "write": [prefix]}]'
        raise ConfigurationError(f"{where} is not a list of tokens: write {form}") from None
    if not 1 <= len(entries) <= _TOKENS_MAX:
        raise ConfigurationError(f"{where} has {len(entries)} tokens; 1 to {_TOKENS_MAX} are taken")
    return Tokens((_digest(entry, where), _client(entry)) for entry in entries)


def _client(entry: _Entry) -> Caller:
    return Caller(entry.name, entry.read, entry.write)


def _digest(entry: _Entry, where: str) -> bytes:
    if (entry.token is None) == (entry.sha256 is None):
        raise ConfigurationError(f"{where}: {entry.name!r} needs either token or sha256")
    if entry.token is not None:
        if len(entry.token) < _TOKEN_CHARACTERS_MIN:
            raise ConfigurationError(
                f"{where}: the token of {entry.name!r} is shorter than {_TOKEN_CHARACTERS_MIN} "
                "characters; take a random one, as `openssl rand -hex 32` makes"
            )
        return hashlib.sha256(entry.token.encode()).digest()
    try:
        digest = bytes.fromhex(entry.sha256 or "")
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise ConfigurationError(f"{where}: sha256 of {entry.name!r} is not 64 hex digits")
    return digest


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None


def _forbidden(verb: str) -> ProblemError:
    return ProblemError("forbidden", f"The token has no {verb} scope for this key or prefix.")
