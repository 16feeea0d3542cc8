"""`streamydb check`: proves a database against a serial replay of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streamydb.cli.common import EXIT_NO, plain, print_json, stdout, tick
from streamydb.cli.options import DatabaseOptions, Json, Procedures, TrimmedBehind, seconds_option
from streamydb.cli.target import find_target

if TYPE_CHECKING:
    from rich.table import Table

    from streamydb.cli.phases import Phase
    from streamydb.verify.check import CheckProgress, CheckReport, OutputCounts


def check(
    options: DatabaseOptions,
    timeout: Annotated[
        float, seconds_option("Seconds to wait for a pipeline that is behind.")
    ] = 60.0,
    created_partitions: Annotated[
        int | None,
        typer.Option(
            help="Partitions of the log when the database was created, if that was elsewhere.",
            min=1,
        ),
    ] = None,
    id_window: Annotated[
        int | None, typer.Option(help="For how many seqs an id is remembered.")
    ] = None,
    procedures: Procedures = None,
    backup: TrimmedBehind = None,
    json: Json = False,
) -> None:
    """Replay the log serially; compare results, changes, dead letters and values byte for byte.

    Works on a live and on a stopped database. Exit code 3 if anything is missing, extra or
    different.
    """
    from streamydb.cli.past import of_this_log
    from streamydb.cli.phases import Phases
    from streamydb.local.module_folder import FolderModules
    from streamydb.verify.check import CheckOptions
    from streamydb.verify.check import check as compare

    target = find_target(options, id_window=id_window, procedures=procedures)
    target.must_listen()
    record, settings = target.files.record(), target.settings
    id_window_set = settings.id_window if "id_window" in settings.model_fields_set else None
    trimmed = of_this_log(target, backup) if backup else None
    modules = [target.procedures, *([trimmed.procedures] if trimmed else [])]
    with Phases().phase(f"Checking {target.database}") as phase:
        report = compare(
            CheckOptions(
                connection=target.connection,
                database=target.database,
                initial_partitions=created_partitions or (record.partitions if record else None),
                id_window=id_window_set,
                timeout_s=timeout,
                modules=FolderModules(modules),
                trimmed=trimmed,
                progress=lambda step: _note(phase, step),
            )
        )
        phase.outcome = f"{report.transactions:,} transactions, {report.txn_per_s:,.0f}/s"
    if json:
        print_json(report)
    else:
        show(report)
    if not report.ok:
        raise typer.Exit(EXIT_NO)


def show(report: CheckReport) -> None:
    from rich.markup import escape

    out = stdout()
    out.print(_table(report))
    out.print(
        f"{report.keys:,} keys at the end; values that differ: {report.values_differing:,}. "
        f"Tombstones: {report.tombstones:,}; resolved up to seq {report.resolved_seq:,}. "
        f"Markers: {report.markers:,}; held back: {report.held_back:,}."
    )
    if report.faults:
        out.print(
            f"[yellow]{report.faults:,} transactions were aborted by a fault in streamy-db[/yellow]"
            " (code internal). Their dead letters name it: please report it."
        )
    for rule, count in report.violations.items():
        out.print(f"[red]rule broken: {rule}[/red], {count:,} times")
    for difference in report.differences:
        position = (
            "" if difference.partition is None else f" {difference.partition}/{difference.offset}"
        )
        seq = "" if difference.seq is None else f", seq {difference.seq}"
        text = f"{difference.kind}: {difference.topic}{position}{seq}: {difference.message}"
        out.print(f"{tick(out, good=False)} {escape(text)}", soft_wrap=True)
        for name, value in (("expected", difference.expected), ("actual", difference.actual)):
            if value is not None:
                out.print(f"    {name:<8} {escape(plain(value))}", soft_wrap=True)
    if not report.caught_up and not report.ok:
        out.print("The pipeline has not caught up in time: is it running? (`streamydb status`)")
    equal, different = "[green]equal to the serial replay[/green]", "[red]DIFFERENT[/red]"
    out.print(f"{tick(out, good=report.ok)} {equal if report.ok else different}")


def _table(report: CheckReport) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0))
    names = ("expected", "matched", "duplicates", "missing", "extra", "differing", "later")
    table.add_column("")
    for name in (*names, "expired"):
        table.add_column(name, justify="right")
    rows: tuple[tuple[str, OutputCounts], ...] = (
        ("results", report.results),
        ("changes", report.changes),
        ("dead letters", report.deadletters),
        ("streams", report.streams),
        ("follow-ups", report.follow_ups),
    )
    rows = rows[:3] if not (rows[3][1].expected or rows[4][1].extra) else rows
    for title, counts in rows:
        cells = (f"{getattr(counts, name):,}" for name in (*names, "expired"))
        table.add_row(title, *cells)
    return table


def _note(phase: Phase, step: CheckProgress) -> None:
    from streamydb.cli.phases import bar

    phase.note(f"{step.name} {bar(step.done, step.total)} {step.done:,} of {step.total:,}")
