"""Records that are no transactions, or just within a limit, or just beyond."""

from __future__ import annotations

import json

HOSTILE = [
    b"",
    None,
    b"{",
    b"\xff\xfe",
    b"null",
    b"[]",
    b'{"id":"n","updates":[{"op":"put","key":"a","value":NaN}]}',
    b'{"id":"h","updates":[{"op":"put","key":"a","value":99999999999999999999}]}',
    b'{"id":"s","reads":["\\ud800"]}',
    b"[" * 70 + b"]" * 70,
    b'{"id":"u","unknown":1}',
    b'{"id":"c","call":{"procedure":"p","args":{},"keys":[]}}',
    b'{"marker":-1}',
    json.dumps({"id": "k", "reads": ["x" * 481]}).encode(),
    json.dumps({"id": "ok", "reads": ["x" * 480]}).encode(),
    json.dumps({"id": "many", "reads": [f"k{i}" for i in range(10_000)]}).encode(),
    json.dumps({"id": "too-many", "reads": [f"k{i}" for i in range(10_001)]}).encode(),
    json.dumps({"id": "empty", "asserts": {}, "updates": []}).encode(),
    b'{"id":"big","updates":[{"op":"put","key":"b","value":"' + b"v" * 262_142 + b'"}]}',
    b'{"id":"big2","updates":[{"op":"put","key":"b","value":"' + b"v" * 262_143 + b'"}]}',
]
