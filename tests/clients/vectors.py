"""Retries that every client makes alike: scripted answers, and what the Python client does then.

`vectors.json` has cases: a call, the answers that it gets one after the other, and the requests,
pauses and outcome that must follow. `python -m tests.clients.vectors` writes them as the Python
client makes them; tests hold it and the TypeScript client against the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import httpx

from streamydb.client.blocking.client import Client
from streamydb.client.blocking.http import HttpTransport
from streamydb.client.connections import HttpOptions
from streamydb.client.errors import ClientError, RequestError
from streamydb.client.session import Options, Session
from streamydb.client.transactions import Prepared
from streamydb.records.problems import PROBLEMS

__all__ = ["CASES", "FILE", "played"]

FILE: Final = Path(__file__).with_name("vectors.json")
_START_MS: Final = 1_700_000_000_000
_SENT: Final = Prepared("own", b'{"id":"own","reads":["k"],"deadline_ms":1700000070000}')

_OK: Final[dict[str, Any]] = {"verdict": {"status": "committed", "code": None, "failed": []}}
_LOST: Final = {"lost": True}
_REFUSED: Final = {"refused": True}
_PENDING: Final = {"pending": "0:7"}
_NEXT: Final = {"pending": "0:8", "attempt": "~1"}
_UNKNOWN: Final = {"problem": "transaction-unknown"}
_PASSED: Final = {"problem": "deadline-passed", "code": "deadline-passed"}


_HOURS: Final = 7_200_000
_TOO_FAR: Final = {
    "problem": "invalid-transaction",
    "code": "deadline-too-far",
    "ts_ms": _START_MS - _HOURS,
}
_TOO_LATE: Final = {**_PASSED, "ts_ms": _START_MS + _HOURS}
"""Clocks that differ by two hours."""


def _verdict(status: str, code: str, *failed: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": {"status": status, "code": code, "failed": list(failed)}}


_LOCK: Final = {"check": "lock", "index": 0, "key": "$unique/a/x", "value": None, "version": 0}
_LACKING: Final = _verdict("aborted", "undeclared-key", _LOCK)

CASES: Final[dict[str, dict[str, Any]]] = {
    "committed": {"call": "put", "answers": [_OK]},
    "busy": {"call": "put", "answers": [{"problem": "overloaded", "retry_after": 2}] * 2 + [_OK]},
    "busy for too long": {"call": "put", "answers": [{"problem": "overloaded", "takes": 4}] * 20},
    "not connected": {"call": "put", "answers": [{**_REFUSED, "takes": 7}] * 20},
    "lost and sent again": {"call": "put", "answers": [_LOST, _OK]},
    "lost for good": {"call": "put", "answers": [{**_LOST, "takes": 9}] * 20},
    "lost, then refused": {"call": "put", "answers": [_LOST, {"problem": "forbidden"}]},
    "a proxy's 502": {"call": "put", "answers": [{"plain": 502}, _OK]},
    "a proxy's 404": {"call": "put", "answers": [{"plain": 404}]},
    "pending": {"call": "put", "answers": [_PENDING, _PENDING, _OK]},
    "pending, then unknown": {"call": "put", "answers": [_PENDING, _UNKNOWN, _OK]},
    "pending for good": {"call": "put", "answers": [{**_PENDING, "takes": 10}] * 20},
    "a fault": {"call": "put", "answers": [{"problem": "internal"}, _OK]},
    "refused": {"call": "put", "answers": [{"problem": "invalid-transaction", "code": "too-deep"}]},
    "aborted": {"call": "put", "answers": [_verdict("aborted", "bound-violated")]},
    "checks fail": {"call": "put", "answers": [_verdict("aborted", "check-failed")]},
    "late, alone": {"call": "transaction", "answers": [_PASSED]},
    "late by verdict, alone": {
        "call": "transaction", "answers": [_verdict("rejected", "deadline-passed")],
    },
    "late, perhaps not alone": {"call": "put", "answers": [_PASSED, _UNKNOWN]},
    "late, not alone": {"call": "put", "answers": [_LOST, _PASSED, _OK]},
    "late, not alone, unknown": {"call": "put", "answers": [_LOST, _PASSED, _UNKNOWN]},
    "late, sent before": {"call": "transaction", "answers": [_LOST, _PASSED, _OK]},
    "late, of others": {"call": "send", "answers": [_PASSED, _OK]},
    "late by verdict": {
        "call": "send", "answers": [_verdict("rejected", "deadline-passed"), _OK],
    },
    "locks": {"call": "put", "answers": [_LACKING, _OK]},
    "locks of a range": {
        "call": "put",
        "answers": [_verdict("aborted", "undeclared-key", {**_LOCK, "key": "order/"}, _LOCK), _OK],
    },
    "locks for ever": {"call": "put", "answers": [_LACKING] * 20},
    "locks, sent on": {"call": "put", "answers": [_NEXT, _PENDING, _OK]},
    "locks, sent on for good": {
        "call": "put", "answers": [_NEXT, *[{**_PENDING, "takes": 10}] * 20],
    },
    "locks, sent on in vain": {"call": "put", "answers": [_NEXT, _LACKING, _OK]},
    "locks, sent on for ever": {"call": "put", "answers": [{**_LACKING, "attempt": "~7"}]},
    "locks, lost, then not connected": {
        "call": "put", "answers": [_LOST, _LACKING, *[{**_REFUSED, "takes": 7}] * 20],
    },
    "locks, late": {"call": "send", "answers": [_PASSED, _LACKING, _OK]},
    "locks, late, unknown": {"call": "send", "answers": [_PASSED, _LACKING, _UNKNOWN]},
    "locks, asked for": {"call": "verdict", "answers": [_LACKING, _PENDING, _LACKING, _OK]},
    "locks, asked for in vain": {"call": "verdict", "answers": [_LACKING, _UNKNOWN]},
    "locks, asked for, late": {"call": "verdict", "answers": [{**_LACKING, "takes": 30}]},
    "locks, asked for, all": {"call": "verdict", "answers": [*[_LACKING] * 8, _UNKNOWN]},
    "asked for": {"call": "verdict", "answers": [_PENDING, _OK]},
    "asked for in vain": {"call": "verdict", "answers": [_UNKNOWN]},
    "a copy asked for": {
        "call": "verdict", "answers": [_PENDING, _verdict("rejected", "deadline-passed"), _OK],
    },
    "a clock ahead": {"call": "put", "answers": [_TOO_FAR, _OK]},
    "a clock behind": {"call": "transaction", "answers": [_TOO_LATE, _OK]},
    "a clock that jumps": {"call": "put", "answers": [_TOO_FAR, _TOO_LATE, _OK]},
    "a clock that jumps for ever": {"call": "put", "answers": [_TOO_FAR, _TOO_LATE, _TOO_FAR]},
    "a clock ahead, lost": {"call": "put", "answers": [_LOST, _TOO_FAR, _TOO_FAR]},
    "a clock ahead, a deadline of the caller's": {"call": "send", "answers": [_TOO_FAR, _TOO_FAR]},
    "a clock behind, told by a verdict": {
        "call": "put",
        "answers": [{"verdict": {"status": "rejected", "code": "deadline-passed", "failed": [],
                                 "ts_ms": _START_MS + 90_500}}, _OK],
    },
    "read": {"call": "get", "answers": [_LOST, {"problem": "read-model-behind"}, {"read": 5}]},
    "read in vain": {"call": "get", "answers": [{"problem": "not-ready", "takes": 8}] * 20},
    "read, forbidden": {"call": "get", "answers": [{"problem": "forbidden"}]},
}  # fmt: skip
"""Calls and answers; an answer takes a second unless it says otherwise.

``attempt`` is what the id in an answer has more than that in the request.
"""


class _Script(httpx.BaseTransport):
    """Answers requests one after the other, in a time of its own."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self.now = 1_000.0
        self.requests: list[list[Any]] = []
        self.pauses: list[float] = []
        self._answers = iter(answers)
        self._bodies: list[bytes] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer."""
        body = request.read()
        if body not in self._bodies:
            self._bodies.append(body)
        place = request.url.raw_path.decode().partition("?")
        self.requests.append(
            [request.method, _named(place[0]), place[2], request.headers.get("prefer"),
             self._bodies.index(body) if body else None]
        )  # fmt: skip
        answer = next(self._answers)
        self.now += answer.get("takes", 1)
        if "lost" in answer:
            raise httpx.ReadError("lost")
        if "refused" in answer:
            raise httpx.ConnectError("refused")
        named = json.loads(body or "{}").get("id") or unquote(place[0].rpartition("/")[2])
        content = _content(answer, named + answer.get("attempt", ""))
        return httpx.Response(answer.get("plain", 0) or _status(answer), **content)

    def deadlines(self) -> list[int]:
        """The deadlines of the bodies, by this machine's clock."""
        found = (json.loads(body or "{}").get("deadline_ms") for body in self._bodies)
        return [each - _START_MS for each in found if each is not None]

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.pauses.append(round(seconds, 6))
        self.now += seconds


def _named(path: str) -> str:
    """A path without the id that a client made; one that follows from it keeps its mark."""
    stem, _, last = path.rpartition("/")
    if stem == "/v1/transactions" and not last.startswith("own"):
        return f"{stem}/*{last[36:]}"
    return path


def _status(answer: dict[str, Any]) -> int:
    if "problem" in answer:
        return PROBLEMS[answer["problem"]].status
    return 202 if "pending" in answer else 200


def _content(answer: dict[str, Any], named: str) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    if "retry_after" in answer:
        headers["Retry-After"] = str(answer["retry_after"])
    body: dict[str, Any] = {}
    if "problem" in answer:
        headers["Content-Type"] = "application/problem+json"
        body = {"type": f"/problems/{answer['problem']}", "status": _status(answer), "detail": "-"}
        body |= {name: answer[name] for name in ("code", "ts_ms") if name in answer}
    elif "pending" in answer:
        headers["Location"] = f"/v1/transactions/{named}?record={answer['pending']}"
    elif "verdict" in answer:
        body = {"id": named, "seq": 7, "ts_ms": _START_MS, "reads": {}, **answer["verdict"],
                "source": {"partition": 0, "offset": 6}}  # fmt: skip
    elif "read" in answer:
        entry = {"key": "k", "value": answer["read"], "version": 3, "ts_ms": _START_MS}
        body = {"seq": 7, "entries": {"k": entry}}
    return {"headers": headers, "content": json.dumps(body).encode()}


def played(case: dict[str, Any]) -> dict[str, Any]:
    """Return what the Python client does in a case."""
    script = _Script(case["answers"])
    transport = HttpTransport(HttpOptions("http://facade"), script)
    session = Session(
        Options(), clock=lambda: script.now, random=lambda: 0.25, wall_ms=lambda: _START_MS
    )
    client = Client(transport, session, script.pause)
    calls: dict[str, Any] = {
        "put": lambda: client.put("k", 1).seq,
        "transaction": lambda: client.transaction(reads=["k"]).seq,
        "send": lambda: client.send(_SENT).seq,
        "verdict": lambda: client.verdict("own").seq,
        "get": lambda: client.get("k"),
    }
    try:
        outcome: Any = calls[case["call"]]()
    except RequestError as error:
        told = error.detail if "clock_ms" in error.members else ""
        outcome = f"{error.slug} {error.code or ''} {told}".rstrip()
    except ClientError as error:
        outcome = type(error).__name__
    return {
        "requests": script.requests, "pauses": script.pauses, "deadlines": script.deadlines(),
        "outcome": outcome,
    }  # fmt: skip


def main() -> None:
    """Write the file."""
    cases = (
        f" {json.dumps(name)}: {json.dumps({**case, **played(case)})}"
        for name, case in CASES.items()
    )
    FILE.write_text("{\n" + ",\n".join(cases) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
