"""The page's files: read once, sent with an entity tag and a strict security policy."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from litestar import Response, get

from streamydb.facade.codings import tagged
from streamydb.facade.conditions import conditions_of
from streamydb.facade.gate import context_of
from streamydb.facade.problems import ProblemError
from streamydb.facade.services import AnyRequest, headers_of

__all__ = ["POLICY", "get_file", "get_page"]

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Only our own files, nothing inline, nobody frames the page, no text becomes markup."""

_PAGE: Final = "index.html"
# The router adds the charset.
_MEDIA_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
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
    """A file as it is sent."""

    data: bytes
    media_type: str
    tag: str


@get("/", include_in_schema=False)
async def get_page(request: AnyRequest) -> Response[bytes]:
    """Send the page."""
    return _answer(request, _files()[_PAGE])


@get("/console/{name:path}", include_in_schema=False)
async def get_file(request: AnyRequest) -> Response[bytes]:
    """Send a file that the page names."""
    file = _files().get(str(request.path_params["name"]).removeprefix("/"))
    if file is None:
        raise ProblemError("no-such-endpoint", "The console has no such file.")
    return _answer(request, file)


def _answer(request: AnyRequest, file: _File) -> Response[bytes]:
    """Return a file, or the answer that the client has it already.

    `sender` adds `nosniff`, as to every answer.
    """
    headers = dict(_HEADERS)
    sender = context_of(request.scope).sender
    codings = {tagged(file.tag, coding): coding for coding in sender.codings(len(file.data))}
    selected = conditions_of(headers_of(request)).selected(list(codings))
    if selected is None:
        raise ProblemError("precondition-failed", "If-Match does not hold for this file.")
    headers["ETag"], known = selected
    if known:
        return Response(b"", status_code=304, headers=headers)
    sender.choose(codings[selected[0]])
    return Response(file.data, media_type=file.media_type, headers=headers)


@cache
def _files() -> dict[str, _File]:
    """All files by their names in the folder: what is not here is not served."""
    folder = Path(__file__).parent / "static"
    return {
        path.relative_to(folder).as_posix(): _File(data, _MEDIA_TYPES[path.suffix], tag)
        for path in folder.rglob("*")
        if path.suffix in _MEDIA_TYPES
        for data in [path.read_bytes()]
        for tag in [f'"{hashlib.sha256(data).hexdigest()}"']
    }
