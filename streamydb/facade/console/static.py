"""The page's files: read once, sent with an entity tag and a strict security policy."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from streamydb.facade.answer import Answer, tagged
from streamydb.facade.conditions import conditions_of
from streamydb.facade.problems import ProblemError
from streamydb.facade.queries import NoQuery
from streamydb.facade.request import FacadeRequest

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Only our own files, nothing inline, nobody frames the page, no text becomes markup."""

_PAGE: Final = "index.html"
_MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


class _File(NamedTuple):
    data: bytes
    media_type: str
    tag: str


async def get_page(request: FacadeRequest, _: NoQuery) -> Answer:
    """Send the page."""
    return _answer(request, _files()[_PAGE])


async def get_file(request: FacadeRequest, _: NoQuery) -> Answer:
    """Send a file that the page names."""
    file = _files().get(request.name.decode())
    if file is None:
        raise ProblemError("no-such-endpoint", "The console has no such file.")
    return _answer(request, file)


def _answer(request: FacadeRequest, file: _File) -> Answer:
    """Return a file, or the answer that the client has it already. `sender` adds `nosniff`, as to
    every answer.
    """
    sender = request.sender
    codings = {tagged(file.tag, coding): coding for coding in sender.codings(len(file.data))}
    selected = conditions_of(request.headers).selected(list(codings))
    if selected is None:
        raise ProblemError("precondition-failed", "If-Match does not hold for this file.")
    tag, known = selected
    headers = {**_HEADERS, "ETag": tag}
    if known:
        return Answer(b"", headers, 304, ())
    sender.choose(codings[tag])
    return Answer(file.data, {**headers, "Content-Type": file.media_type}, common=())


@cache
def _files() -> dict[str, _File]:
    folder = Path(__file__).parent / "static"
    return {
        path.relative_to(folder).as_posix(): _File(data, _MEDIA_TYPES[path.suffix], tag)
        for path in folder.rglob("*")
        if path.suffix in _MEDIA_TYPES
        for data in [path.read_bytes()]
        for tag in [f'"{hashlib.sha256(data).hexdigest()}"']
    }
