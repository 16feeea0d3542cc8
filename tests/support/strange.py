"""Records that something else has written to a topic of ours."""

from __future__ import annotations

STRANGE: tuple[bytes | None, ...] = (
    None,
    b"",
    b"\xff\x00",
    b"junk",
    b"{",
    b"[]",
    b"7",
    b"{}",
    b'{"resolved"',
    b'{"resolved":"x"}',
    b'{"kind":"beat"}',
    b'{"format":"csv"}',
    b'{"seq":"x"}',
    b"[" * 2_000,
    b'{"op":"c","before":null,"after":{"id":1},"source":{"connector":"mysql","db":"shop"}}',
)
"""None: a tombstone."""

LATER = (b'{"format":2}', b'{"resolved":3,"ts_ms":1,"offsets":{},"format":2}')
"""Those of a later release."""
