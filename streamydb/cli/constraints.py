"""`streamydb constraints`: list, declare, drop and verify integrity constraints."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamydb.cli.common import EXIT_NO, EXIT_USAGE, fail, plain, print_json, read_file, say
from streamydb.cli.options import DatabaseOptions, Json, ResultTimeout
from streamydb.cli.target import Target, facade_of, find_target
from streamydb.records.formats import UNREADABLE

if TYPE_CHECKING:
    from streamydb.client.verification import VerificationReport


class ConstraintAction(StrEnum):
    """An action on constraints."""

    LIST = "list"
    DECLARE = "declare"
    DROP = "drop"
    VERIFY = "verify"


def constraints(
    options: DatabaseOptions,
    action: Annotated[
        ConstraintAction,
        typer.Argument(
            help="list; declare JSON or @FILE; drop NAME; verify [NAME]: judge older data."
        ),
    ],
    what: Annotated[str | None, typer.Argument(help="As the action has it.")] = None,
    url: Annotated[
        str | None,
        typer.Option(help="For verify: the facade (default: the one that `up` started)."),
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="For verify: the facade's, if it wants one.")
    ] = None,
    timeout: ResultTimeout = 60.0,
    json: Json = False,
) -> None:
    """List, declare, drop and verify integrity constraints.

    Declarations go through the log: they hold for the transactions after them.
    """
    target = find_target(options)
    # Refuse an action without what it is about, or with what it has no use for.
    if what is None and action is ConstraintAction.DECLARE:
        fail("declare what? Give a declaration as JSON, or as @FILE", EXIT_USAGE)
    if what is None and action is ConstraintAction.DROP:
        fail("drop what? Give a constraint's name", EXIT_USAGE)
    if what is not None and action is ConstraintAction.LIST:
        fail("list takes nothing else: it shows all constraints", EXIT_USAGE)
    if action is ConstraintAction.LIST:
        _list(target, timeout, json=json)
    elif action is ConstraintAction.VERIFY:
        _verify(target, what, (url, token), timeout, json=json)
    elif action is ConstraintAction.DROP:
        _constrain(target, {"drop": what}, timeout, json=json)
    else:
        _constrain(target, {"declare": declaration(what or "")}, timeout, json=json)


def declaration(text: str) -> Any:
    """The declaration that an argument gives, as JSON or as @FILE. Raises Failure: it is no JSON
    object, or the file cannot be read.
    """
    import msgspec

    try:
        data = read_file(Path(text[1:])) if text.startswith("@") else text.encode()
        fields = msgspec.json.decode(data)
    except UNREADABLE as error:
        fail(f"{text} is no declaration: {error}", EXIT_USAGE)
    if not isinstance(fields, dict):
        fail(f"{text} is no declaration: it is not a JSON object", EXIT_USAGE)
    return fields


def _constrain(target: Target, change: dict[str, Any], timeout_s: float, *, json: bool) -> None:
    from streamydb.cli.calls import commit

    result = commit(target, {"constrain": change}, timeout_s, "nothing was changed")
    if json:
        print_json({"seq": result.seq, **change})
    else:
        ((what, content),) = change.items()
        name = content if isinstance(content, str) else content.get("name")
        verb = "declared" if what == "declare" else "dropped"
        typer.echo(f"{verb} {name} at seq {result.seq}; it counts from there on")


def _list(target: Target, timeout_s: float, *, json: bool) -> None:
    import msgspec

    from streamydb.cli.calls import read
    from streamydb.records import CONSTRAINTS_KEY

    value = read(target, [CONSTRAINTS_KEY], timeout_s)[CONSTRAINTS_KEY]
    constraints = msgspec.json.decode(value) or {}
    if json:
        print_json(constraints)
        return
    for name, entry in constraints.items():
        rules = {rule: entry[rule] for rule in entry if rule not in ("prefix", "since", "valid")}
        state = f"valid as of {entry['valid']}" if "valid" in entry else "not verified"
        text = msgspec.json.encode(rules).decode()
        line = f"{name}  {entry['prefix']}*  {text}  since {entry['since']}, {state}"
        typer.echo(plain(line))
    if not constraints:
        say("no constraints; declare one: `streamydb constraints declare "
            '\'{"name": "balance", "prefix": "acct/", "type": "number", "min": 0}\'`')  # fmt: skip


def _verify(
    target: Target,
    name: str | None,
    facade: tuple[str | None, str | None],
    timeout_s: float,
    *,
    json: bool,
) -> None:
    import streamydb
    from streamydb.client.verification import verify

    url, token = facade
    address = facade_of(target, url)
    with streamydb.connect(address, token=token, timeout_s=timeout_s) as client:
        try:
            report = verify(client, name)
        except KeyError:
            fail(f"there is no constraint {name}; see `streamydb constraints list`")
    _show(report, json=json)
    if report.violations:
        raise typer.Exit(EXIT_NO)


def _show(report: VerificationReport, *, json: bool) -> None:
    if json:
        fields = report._asdict() | {"violations": [v._asdict() for v in report.violations]}
        print_json(fields)
        return
    for violation in report.violations:
        line = f"{violation.key} (version {violation.version}) violates {violation.constraint}: "
        typer.echo(plain(line + violation.violated))
    valid = ", ".join(report.valid) or "none"
    typer.echo(
        f"{report.keys} values at seq {report.seq}, {report.indexed} put into the index, "
        f"{len(report.violations)} violations; valid: {valid}"
    )
