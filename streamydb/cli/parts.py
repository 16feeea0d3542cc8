"""A transaction from command-line arguments: the small language of `streamydb txn` (pure).

--put KEY=VALUE            VALUE is JSON; what is not JSON is taken as text
--add KEY=BY[,min=N][,max=N]
--max KEY=N  --min KEY=N  --append KEY=VALUE  --next-id KEY  --delete KEY  --read KEY
--touch KEY                gives it another end, or none
--ttl-ms N                 what is put, appended to and touched ends N ms after the commit
--read-range RANGE         PREFIX, or START..END; a range with `..` in it needs a JSON line
--call MODULE.PROCEDURE --arg NAME=VALUE --key KEY --key-read KEY --key-range RANGE
--assert KEY=VALUE         null = the key is absent
--check 'KEY>=10'          one of >= <= == != > < ; or 'KEY@41' (version), 'KEY exists',
                           'KEY absent'
--check-range 'RANGE count<=9'
                           one of count<= count>= count== version<=; or 'RANGE exists',
                           'RANGE absent'
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from streamydb.limits import TTL_MS_MAX
from streamydb.records.formats import UNREADABLE
from streamydb.records.names import NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

JsonObject = dict[str, Any]
Texts = list[str] | None

_COMPARATORS = {">=": "ge", "<=": "le", "==": "eq", "=": "eq", "!=": "ne", ">": "gt", "<": "lt"}
_CHECK = re.compile(r"(?P<key>.+?)\s*(?P<op>>=|<=|==|!=|=|>|<)\s*(?P<value>.+)", re.DOTALL)
_VERSION = re.compile(r"(?P<key>.+)@(?P<version>\d{1,19})", re.DOTALL)
_RANGED = re.compile(
    r"(?P<range>.+?)\s+(?P<what>count|version)\s*(?P<op><=|>=|==|=)\s*(?P<value>\d{1,19})",
    re.DOTALL,
)
_RANGE_COMPARATORS = {
    "count<=": "count_le", "count>=": "count_ge", "count==": "count", "count=": "count",
    "version<=": "version_le",
}  # fmt: skip
_PROCEDURE = re.compile(rf"{NAME}\.{NAME}")
_ENDING = {"put", "append", "touch"}
_PRESENCE = re.compile(r"(?P<key>.+?)\s+(?P<word>exists|absent)", re.DOTALL)


class PartError(ValueError):
    """An argument that is not in the language; the message shows the form that is."""


def value_of(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
        return text


def number_of(text: str, option: str) -> int | float:
    """A JSON number. Raises PartError: it is something else."""
    value = value_of(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PartError(f"{option}: {text!r} is not a number")
    return value


def pair_of(text: str, option: str, form: str = "KEY=VALUE") -> tuple[str, str]:
    """Key and value around the first `=`. Raises PartError: there is no `=`, or no key."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise PartError(
            f"{option}: {text!r} is not of the form {form}"
            " (a key with `=` in it needs a JSON line: `streamydb txn FILE`)"
        )
    return key, value


def values_of(texts: Iterable[str], option: str, form: str = "KEY=VALUE") -> JsonObject:
    """Pairs `KEY=VALUE` as one object. Raises PartError: one is no pair, or two have one key."""
    values: JsonObject = {}
    for key, value in (pair_of(text, option, form) for text in texts):
        if key in values:
            raise PartError(f"{option}: {key!r} is given twice")
        values[key] = value_of(value)
    return values


def value_update_of(text: str, op: str) -> JsonObject:
    key, value = pair_of(text, f"--{op}")
    return {"op": op, "key": key, "value": value_of(value)}


def add_of(text: str) -> JsonObject:
    form = "KEY=BY[,min=N][,max=N]"
    key, rest = pair_of(text, "--add", form)
    by, *bounds = rest.split(",")
    update: JsonObject = {"op": "add", "key": key, "by": number_of(by, "--add")}
    for bound in bounds:
        name, _, number = bound.strip().partition("=")
        if name not in {"min", "max"} or name in update:
            raise PartError(f"--add: {text!r} is not of the form {form}")
        update[name] = number_of(number, "--add")
    return update


def extreme_of(text: str, op: str) -> JsonObject:
    key, number = pair_of(text, f"--{op}", "KEY=NUMBER")
    return {"op": op, "key": key, "value": number_of(number, f"--{op}")}


def check_of(text: str) -> JsonObject:
    """A comparison as a check. Raises PartError: it is no comparison."""
    presence = _PRESENCE.fullmatch(text)
    if presence is not None:
        return {"key": presence["key"], "exists": presence["word"] == "exists"}
    comparison = _CHECK.fullmatch(text)
    if comparison is not None:
        value = value_of(comparison["value"])
        return {"key": comparison["key"], _COMPARATORS[comparison["op"]]: value}
    version = _VERSION.fullmatch(text)
    if version is not None:
        return {"key": version["key"], "version": int(version["version"])}
    raise PartError(
        f"--check: {text!r} is not a check; write 'KEY>=10' (or <= == != > <), 'KEY@41' for a "
        "version, 'KEY exists' or 'KEY absent'"
    )


def range_of(text: str) -> JsonObject:
    start, dots, end = text.partition("..")
    return {"start": start, "end": end} if dots and start and end else {"prefix": text}


def range_check_of(text: str) -> JsonObject:
    """A comparison as a check of a range. Raises PartError: it is no comparison."""
    presence = _PRESENCE.fullmatch(text)
    if presence is not None:
        return {"range": range_of(presence["key"]), "exists": presence["word"] == "exists"}
    match = _RANGED.fullmatch(text)
    comparator = match and _RANGE_COMPARATORS.get(match["what"] + match["op"])
    if match is None or comparator is None:
        raise PartError(
            f"--check-range: {text!r} is not a check; write 'PREFIX count<=9' (or count>= count== "
            "version<=), 'START..END count<=9', 'PREFIX exists' or 'PREFIX absent'"
        )
    return {"range": range_of(match["range"]), comparator: int(match["value"])}


class TransactionOptions(NamedTuple):
    """The options of `streamydb txn` that make a transaction."""

    put: Annotated[Texts, typer.Option(help="KEY=VALUE (JSON, or plain text).")] = None
    add: Annotated[Texts, typer.Option(help="KEY=NUMBER[,min=NUMBER][,max=NUMBER].")] = None
    maximum: Annotated[Texts, typer.Option("--max", help="KEY=NUMBER: keep the larger.")] = None
    minimum: Annotated[Texts, typer.Option("--min", help="KEY=NUMBER: keep the smaller.")] = None
    append: Annotated[Texts, typer.Option(help="KEY=VALUE: append to a list.")] = None
    next_id: Annotated[Texts, typer.Option(help="KEY: take the next number.")] = None
    delete: Annotated[Texts, typer.Option(help="KEY.")] = None
    touch: Annotated[Texts, typer.Option(help="KEY: give it another end (--ttl-ms), or none.")] = (
        None
    )
    ttl_ms: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=TTL_MS_MAX,
            help="What is put, appended to and touched ends so many ms after the commit.",
        ),
    ] = None
    read: Annotated[Texts, typer.Option(help="KEY: its value afterwards.")] = None
    read_range: Annotated[
        Texts, typer.Option(help="PREFIX or START..END: its entries afterwards.")
    ] = None
    assert_: Annotated[
        Texts, typer.Option("--assert", help="KEY=VALUE that must hold before; null: absent.")
    ] = None
    check: Annotated[
        Texts, typer.Option(help="'KEY>=10', 'KEY@VERSION', 'KEY exists', 'KEY absent'.")
    ] = None
    check_range: Annotated[
        Texts,
        typer.Option(
            help="'PREFIX count<=9', 'START..END version<=41', 'PREFIX exists', 'PREFIX absent'."
        ),
    ] = None
    call: Annotated[str | None, typer.Option(help="MODULE.PROCEDURE: call a stored procedure.")] = (
        None
    )
    arg: Annotated[Texts, typer.Option(help="NAME=VALUE: an argument.")] = None
    key: Annotated[Texts, typer.Option(help="KEY that it may read and write.")] = None
    key_read: Annotated[Texts, typer.Option(help="KEY that it may read.")] = None
    key_range: Annotated[Texts, typer.Option(help="PREFIX or START..END that it may scan.")] = None


def transaction_of(parts: TransactionOptions) -> JsonObject:
    """The transaction (without its id) of these options, updates in this order of kinds.
    Raises PartError: an argument is not in the language.
    """
    updates: list[JsonObject] = [
        *(value_update_of(text, "put") for text in parts.put or ()),
        *map(add_of, parts.add or ()),
        *(extreme_of(text, "max") for text in parts.maximum or ()),
        *(extreme_of(text, "min") for text in parts.minimum or ()),
        *(value_update_of(text, "append") for text in parts.append or ()),
        *({"op": "next_id", "key": key} for key in parts.next_id or ()),
        *({"op": "delete", "key": key} for key in parts.delete or ()),
        *({"op": "touch", "key": key} for key in parts.touch or ()),
    ]
    ending = [update for update in updates if update["op"] in _ENDING]
    if parts.ttl_ms is not None and not ending:
        raise PartError("--ttl-ms belongs to --put, --append or --touch")
    for update in ending if parts.ttl_ms is not None else ():
        update["ttl_ms"] = parts.ttl_ms
    transaction: JsonObject = {
        "asserts": values_of(parts.assert_ or (), "--assert"),
        "checks": [
            *map(check_of, parts.check or ()),
            *map(range_check_of, parts.check_range or ()),
        ],
        "reads": [
            *(parts.read or ()),
            *({"range": range_of(text)} for text in parts.read_range or ()),
        ],
        "updates": updates,
    }
    if parts.call is not None:
        if not _PROCEDURE.fullmatch(parts.call):
            raise PartError(f"--call: {parts.call!r} is not of the form MODULE.PROCEDURE")
        transaction["call"] = {
            "procedure": parts.call,
            "args": values_of(parts.arg or (), "--arg", "NAME=VALUE"),
            "keys": list(parts.key or ()),
            "reads": list(parts.key_read or ()),
        }
        if parts.key_range:
            transaction["call"]["ranges"] = [range_of(text) for text in parts.key_range]
    elif parts.arg or parts.key or parts.key_read or parts.key_range:
        raise PartError(
            "--arg, --key, --key-read and --key-range belong to --call MODULE.PROCEDURE"
        )
    return {name: part for name, part in transaction.items() if part}
