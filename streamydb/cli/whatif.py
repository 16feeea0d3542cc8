"""`streamydb whatif`: what a stretch of the log would have come to under other rules."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamydb.cli.common import EXIT_NO, EXIT_USAGE, fail, plain, print_json, read_file, say
from streamydb.cli.options import DatabaseOptions, Json, Procedures, backup_option
from streamydb.cli.target import find_target

if TYPE_CHECKING:
    from streamydb.verify.whatif import WhatIfDifference, WhatIfReport

_SHOWN_CHARACTERS = 300


def whatif(
    options: DatabaseOptions,
    module: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="Calls of this module run the code of a file."),
    ] = None,
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JSON", help="A declaration (or @FILE), made right before the stretch."
        ),
    ] = None,
    drop_constraint: Annotated[
        list[str] | None, typer.Option(help="A constraint, dropped right before the stretch.")
    ] = None,
    from_seq: Annotated[int, typer.Option(help="The first transaction of the stretch.", min=1)] = 1,
    to_seq: Annotated[
        int | None, typer.Option(help="The last one (default: the log's newest).", min=1)
    ] = None,
    backup: Annotated[
        Path | None, backup_option("Ask this backup, not Kafka; begins with its nearest state.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Parquet file for all differences.")] = None,
    procedures: Procedures = None,
    json: Json = False,
) -> None:
    """Execute a stretch of the log again with other procedures or constraints; say what differs.

    Compares verdicts, reads, writes and final values with those that were; writes nothing to the
    database. Exit code 0: no difference; 3: something differs; 1: it could not be done.
    """
    from streamydb.cli.backup_options import noting
    from streamydb.cli.constraints import declaration
    from streamydb.cli.past import backup_history, live_history
    from streamydb.cli.phases import Phases
    from streamydb.verify.whatif import Stretch, rules_of
    from streamydb.verify.whatif import whatif as executed
    from streamydb.verify.whatif.parquet import DifferencesFile

    if not (module or constraint or drop_constraint):
        fail("what if what? Give --module NAME=FILE, --constraint or --drop-constraint", EXIT_USAGE)
    if to_seq is not None and to_seq < from_seq:
        fail(f"--to-seq {to_seq} is before --from-seq {from_seq}", EXIT_USAGE)
    modules, declared = dict(map(_module, module or ())), [*map(declaration, constraint or ())]
    rules = rules_of(modules, declared, drop_constraint or ())
    target = find_target(options, procedures=procedures)
    history = live_history(target) if backup is None else backup_history(target, backup)
    with ExitStack() as stack:
        phase = stack.enter_context(Phases().phase(f"What if, of {history.database}"))
        file = None if output is None else stack.enter_context(DifferencesFile(output))
        keep = _ignore if file is None else file.keep
        report = executed(history, rules, Stretch(from_seq, to_seq), keep, noting(phase))
        count = report.to_seq - report.from_seq + 1
        phase.outcome = f"{count:,} transactions executed twice"
    print_json(_told(report, output)) if json else _show(report, output, list(modules))
    if not report.same:
        raise typer.Exit(EXIT_NO)


def _module(text: str) -> tuple[str, Path]:
    name, separator, file = text.partition("=")
    if not separator or not name or not file:
        fail(f"--module {text}: give it as NAME=FILE, like shop=new_shop.py", EXIT_USAGE)
    path = Path(file)
    read_file(path)
    return name, path


def _ignore(_: WhatIfDifference) -> None:
    return


def _told(report: WhatIfReport, output: Path | None) -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(report)
    for kind in fields["kinds"].values():
        if kind["first"] is not None:
            kind["first"] = dict(zip(_FIELDS, kind["first"], strict=True))
    return {**fields, "same": report.same, "output": None if output is None else str(output)}


_FIELDS = ("seq", "id", "kind", "before", "after")


def _show(report: WhatIfReport, output: Path | None, modules: list[str]) -> None:
    count = report.to_seq - report.from_seq + 1
    stretch = f"seq {report.from_seq} to {report.to_seq}"
    for name, kind in report.kinds.items():
        if kind.first is None:
            continue
        first = kind.first
        typer.echo(f"{name}: {kind.count:,} differ; the first is seq {first.seq}"
                   + (f", id {plain(first.id)}" if first.id is not None else ""))  # fmt: skip
        typer.echo(f"  before  {_cut(first.before)}")
        typer.echo(f"  after   {_cut(first.after)}")
    if report.same:
        typer.echo(f"No difference in {count:,} transactions ({stretch}), {report.keys:,} keys.")
    else:
        typer.echo(f"{report.differing:,} of {count:,} transactions differ ({stretch}).")
    if modules and not report.calls:
        say(f"No call of {', '.join(modules)} was executed in this stretch.")
    if report.waiting.before != report.waiting.after:
        say(
            f"Follow-ups that were made and have no place in the log: {report.waiting.after:,} "
            f"(as it was: {report.waiting.before:,}). What they would do is not known."
        )
    if output is not None:
        say(f"All differences: {output}")


def _cut(text: str | None) -> str:
    if text is None:
        return "nothing"
    text = plain(text)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
