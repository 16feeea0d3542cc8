"""The differences between two executions of a transaction, or two final states (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from streamydb.records import CONSTRAINTS_KEY, Change, Result, decode_change, decode_result
from streamydb.records.names import UNIQUE_PREFIX
from streamydb.verify.oracle.outputs import OutputRecord

KINDS: Final = ("verdict", "reason", "reads", "returned", "writes", "emitted", "value")
"""The kinds of differences; all but the last are one transaction's."""

State = Mapping[str, tuple[bytes, int]]


class WhatIfDifference(NamedTuple):
    """A difference: where, and what is on either side as JSON text (None: nothing is there).

    ``seq`` and ``id``: of the transaction; of a final value: of its last writer, without an id.
    """

    seq: int
    id: str | None
    kind: str
    before: str | None
    after: str | None


def between(
    seq: int, before: Sequence[OutputRecord], after: Sequence[OutputRecord]
) -> Iterator[WhatIfDifference]:
    """Yield how the outputs of the transaction at a seq differ."""
    if before == after:
        return
    was, now = _result(before), _result(after)
    name = next((each.id for each in (was, now) if each is not None), None)
    values: dict[str, tuple[Any, Any]] = {"verdict": (_verdict(was), _verdict(now))}
    if values["verdict"][0] == values["verdict"][1] and was is not None and now is not None:
        values["reason"] = _reason(was), _reason(now)
        values["reads"] = _reads(was), _reads(now)
        values["returned"] = _given(was.returned), _given(now.returned)
    values["writes"] = _writes(before), _writes(after)
    values["emitted"] = _emitted(before), _emitted(after)
    for kind, (old, new) in values.items():
        if old != new:
            yield WhatIfDifference(seq, name, kind, _text(old), _text(new))


def _reads(result: Result) -> Any:
    """The values that were read, by key, and the ranges, if there are some."""
    if result.ranges is UNSET:
        return result.reads
    return {"reads": result.reads, "ranges": result.ranges}


def of_values(before: State, after: State) -> Iterator[WhatIfDifference]:
    for key in sorted({*before, *after}):
        was, now = before.get(key), after.get(key)
        if _is_derived(key) or (was and was[0]) == (now and now[0]):
            continue
        writer = max(entry[1] for entry in (was, now) if entry is not None)
        yield WhatIfDifference(writer, None, "value", _entry(key, was), _entry(key, now))


def _entry(key: str, value: tuple[bytes, int] | None) -> str | None:
    if value is None:
        return _text({"key": key, "value": None, "version": 0})
    return _text({"key": key, "value": msgspec.Raw(value[0]), "version": value[1]})


def _is_derived(key: str) -> bool:
    """Return True for what holds the constraints themselves, and the index behind uniqueness."""
    return key == CONSTRAINTS_KEY or key.startswith(UNIQUE_PREFIX)


def _result(outputs: Sequence[OutputRecord]) -> Result | None:
    values = (each.value for each in outputs if each.topic == "results")
    value = next(values, None)
    return None if value is None else decode_result(value)


def _verdict(result: Result | None) -> dict[str, Any] | None:
    return None if result is None else {"status": result.status, "code": result.code}


def _reason(result: Result) -> dict[str, Any]:
    return {"reason": _given(result.reason), "failed": result.failed}


def _given(value: Any) -> Any:
    return None if value is UNSET else value


def _writes(outputs: Sequence[OutputRecord]) -> dict[str, Any]:
    """The values that are left behind, by key."""
    writes = {}
    for _, key, value in (each for each in outputs if each.topic == "changes"):
        name = (key or b"").decode()
        if value is None or _is_derived(name):
            continue
        change = decode_change(value)
        if isinstance(change, Change):
            writes[name] = change.after
    return writes


def _emitted(outputs: Sequence[OutputRecord]) -> list[Any]:
    kinds = ("streams", "transactions")
    return [msgspec.Raw(each.value or b"null") for each in outputs if each.topic in kinds]


def _text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
