"""`streamydb up`: a whole database on this machine in the background."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamydb.cli.common import EXIT_USAGE, Failure, fail, print_json, say
from streamydb.cli.create import Connect, Sync, create_database, refuse_changes, refuse_partitions
from streamydb.cli.down import grace_of, stop_strays
from streamydb.cli.options import (
    MASTER,
    DatabaseOptions,
    FoundingOptions,
    Json,
    Master,
    Procedures,
    ReadyTimeout,
)
from streamydb.cli.target import Target, find_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from streamydb.cli.front import Front
    from streamydb.cli.phases import Phase, Phases
    from streamydb.local.jars import FetchProgress
    from streamydb.records import Result

HELLO_KEY = "hello"
FIRST_RESULT_S_MAX = 90.0
"""How long the first transaction may take: Spark compiles its query meanwhile."""

LITTLE_GB = 3
"""Where there is less memory than this, a database takes little of it unless told otherwise."""

SMALL = "--small"  # the option of a pipeline that takes little memory
_SECOND = "With --second this command starts one all the same"

_OF_PIPELINE = ("streamydb.pipeline.daemon:preload", "streamydb.pipeline.main")
_OF_ALL = (
    *_OF_PIPELINE, "streamydb.read_model.warmup:warm_up", "streamydb.read_model.service",
    "streamydb.facade.app", "streamydb.facade.server", "streamydb.facade.connections",
)  # fmt: skip
"""What the processes of a database need, for the server that forks them."""

Grouping = Annotated[
    str | None, typer.Option("--grouping", help="planner or single; as created (default: planner).")
]

Small = Annotated[
    bool | None,
    typer.Option(
        "--small/--no-small",
        help="Take less memory, and do less at a time "
        f"(default: where there are less than {LITTLE_GB} GB).",
    ),
]

HttpPort = Annotated[
    int | None,
    typer.Option(
        "--http-port",
        help="Port of the REST facade (env: STREAMYDB_SERVE_PORT; default: 8080, else free).",
        min=1,
        max=65535,
    ),
]


def up(
    options: DatabaseOptions,
    founding: FoundingOptions,
    grouping: Grouping = None,
    master: Master = MASTER,
    procedures: Procedures = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port of the embedded broker (default: free).", min=1, max=65535),
    ] = None,
    http_port: HttpPort = None,
    second: Annotated[
        bool, typer.Option("--second", help="Start it even if the database is executed elsewhere.")
    ] = False,
    sync: Sync = None,
    connect: Connect = False,
    http: Annotated[
        bool, typer.Option("--http/--no-http", help="Start read model and REST facade, too.")
    ] = True,
    small: Small = None,
    timeout: ReadyTimeout = 180.0,
    json: Json = False,
) -> None:
    """Start a database in the background: broker, topics, pipeline, facade; run a transaction.

    Starts what does not run already. `streamydb down` stops it.
    """
    from streamydb.cli.front import begin_front, front_of
    from streamydb.cli.launch import start_pipeline, wait_until_ready
    from streamydb.cli.phases import Phases
    from streamydb.cli.undone import undone_if_interrupted
    from streamydb.local.fork_server import ForkServer

    def looked_up() -> tuple[Target, Front | None]:
        target = find_target(
            options, **founding._asdict(), grouping=grouping, procedures=procedures
        )
        refuse_changes(target)
        front = front_of(target, http_port, timeout) if http else None
        return target, None if front is None else front._replace(small=takes_little(small))

    with _alone(looked_up()[0]):
        target, front = looked_up()  # another `up` may have made it since
        phases = Phases()
        with undone_if_interrupted(target, phases):
            stop_strays(target.files.folder, grace_of(target), phases)
            if _runs(target):
                refuse_partitions(target)
                if port is not None:
                    start_broker(target, port, phases)  # which refuses another port
                _refuse_other_ways(target, master, small)
                _go_on(target, front, phases, sync, connect=connect)
                _tell_running(target, json)
                return
            if not second:
                refuse_second(target)
            with ForkServer(_OF_PIPELINE if front is None else _OF_ALL) as forks:
                _fetch_jars(target, phases)
                start_broker(target, port, phases, small=small)
                with _stopped_if_it_fails(target, phases):
                    # Create the topics and start the pipeline unless it is on its way already; wait
                    # for it. What reads the database begins meanwhile.
                    with phases.phase("Topics") as phase:
                        phase.outcome = ", ".join(create_database(target, sync)[0].all())
                    with phases.phase("Pipeline") as phase:
                        phase.note("loading what all share (compiling kernels, the first time)")
                        if target.files.pipeline() is None:
                            little = [SMALL] if takes_little(small) else []
                            start_pipeline(target, master, little, forks)
                        if front is not None:
                            begin_front(target, front, forks)
                        forks.close()
                        status = wait_until_ready(target, timeout, phase)
                        phase.outcome = f"running on Spark {master}, process {status.pid}"
                    first = _first_transaction(target, phases)
            _go_on(target, front, phases, None, connect=connect)
    archived = archive_later(target, small=takes_little(small))
    if json:
        print_json({**_facts(target), "already_running": False, "first_result": first})
    else:
        _tell_next(target, archived=archived)


def archive_later(target: Target, *, small: bool) -> bool:
    """Begin a process that makes the archives of class data, unless they are there, or this is no
    machine for it: one with little memory, or one that tests and is thrown away. Return True then.
    """
    from streamydb.local.class_data import TRAINING, is_missing
    from streamydb.local.launcher import LocalProcess

    unwished = small or not target.settings.class_data or "CI" in os.environ
    if unwished or TRAINING in os.environ or not is_missing():
        return False
    command = [sys.executable, "-m", "streamydb.cli.class_data", "--later"]
    LocalProcess("class data", command, target.settings.cache / "class-data.log").release()
    return True


def _alone(target: Target) -> AbstractContextManager[None]:
    """Wait until no other `up` of this database is under way, and keep others off."""
    from streamydb.local.file_lock import file_lock

    return file_lock(target.files.folder / "run" / "up.lock", lambda: say(
        f"Another `streamydb up` of database {target.database} is under way: waiting for its end."
    ))  # fmt: skip


def _refuse_other_ways(target: Target, master: str, small: bool | None) -> None:
    """Refuse options that a pipeline which runs was started without."""
    from streamydb.local.folder import option_of

    running = target.files.pipeline()
    if running is None:
        return
    if small is not None and small is not (SMALL in running.command):
        without, flag = ("without", SMALL) if small else ("with", "--no-small")
        fail(
            f"the pipeline of {target.database} runs {without} {SMALL}: stop it first "
            f"(`{target.command('down')}`), or leave {flag} out"
        )
    folder = target.settings.procedures
    asked_for = {
        "--bootstrap": target.bootstrap,
        "--master": None if master == MASTER else master,
        "--procedures": None if folder is None else str(folder),
    }
    for option, value in asked_for.items():
        recorded = option_of(running, option) or ""
        if value is not None and not {*value.split(",")} & {*recorded.split(",")}:
            fail(
                f"the pipeline of {target.database} runs with {option} {recorded}, not {value}: "
                f"stop it first (`{target.command('down')}`), or leave {option} out"
            )


def _go_on(
    target: Target, front: Front | None, phases: Phases, sync: bool | None, *, connect: bool
) -> None:
    """Do what is left when the pipeline runs: the durability that is wished for, the facade unless
    there is to be none, and the copy for Kafka Connect if it is wished for, or was once.
    """
    from streamydb import kafka
    from streamydb.cli.front import start_copy, start_front

    if sync is not None:
        kafka.set_sync(target.connection, target.database, on=sync)
    if front is not None:
        start_front(target, front, phases)
    if connect:
        kafka.add_connect(target.connection, target.database)
    start_copy(target, phases)


def takes_little(small: bool | None) -> bool:
    """Return True if a database is to take little memory: as it is wished, else as there is."""
    from streamydb.local.memory import memory_bytes

    return memory_bytes() < LITTLE_GB << 30 if small is None else small


def _runs(target: Target) -> bool:
    """Return True if the pipeline runs, and the broker if it is the embedded one."""
    from streamydb.local.broker import find_broker

    if target.files.status().state != "running":
        return False
    return target.settings.bootstrap is not None or find_broker(target.settings.home) is not None


def refuse_second(target: Target, wish: str = _SECOND) -> None:
    """Refuse to begin a checkpoint while a pipeline elsewhere executes the database. One that was
    begun here before is only continued, and follows. ``wish``: how to begin it all the same.
    """
    from streamydb.cli.status import leader_of, pipelines_elsewhere

    if target.settings.bootstrap is None:
        return
    target.must_listen()
    if target.files.incarnations():
        return
    leader = leader_of(pipelines_elsewhere(target))
    if leader is not None:
        fail(
            f"database {target.database} is executed elsewhere, by pipeline {leader}. To use it "
            "from here: `streamydb txn`, or `read-model` and `serve` for a facade. A second "
            f"pipeline that takes over when that one stops: `streamydb pipeline --standby`. {wish}"
            "; if that one has just ended, wait half a minute"
        )


def _tell_running(target: Target, json: bool) -> None:
    from streamydb.cli.status import describe, show

    if json:
        print_json({**_facts(target), "already_running": True, "first_result": None})
        return
    say(f"Database {target.database} runs already.")
    show(describe(target))


def _facts(target: Target) -> dict[str, Any]:
    return {
        "database": target.database, "bootstrap": target.bootstrap,
        "home": str(target.settings.home), "folder": str(target.files.folder),
        "http": target.files.facade_url(), "pipeline": target.files.status(),
    }  # fmt: skip


def _fetch_jars(target: Target, phases: Phases) -> None:
    from streamydb.local import jars

    confs = ["pipeline"] if target.settings.bootstrap is not None else ["broker", "pipeline"]
    missing = [conf for conf in confs if jars.cached(conf, target.settings.cache) is None]
    if not missing:
        return
    with phases.phase("Fetching jars (once)") as phase:
        count = sum(len(jars.resolve(c, target.settings.cache, _noting(phase))) for c in missing)
        phase.outcome = f"{count} jars in {target.settings.cache}"


def _noting(phase: Phase) -> Any:
    def note(progress: FetchProgress) -> None:
        phase.note(f"{progress.conf}, {progress.stage} {progress.artifacts} {progress.name}")

    return note


def start_broker(
    target: Target, port: int | None, phases: Phases, *, small: bool | None = None
) -> None:
    """Start the embedded broker unless another one is named or it runs. ``small``: with little
    memory, or not; None: as the machine is. Raises Failure: nobody listens at the address that is
    named, or a port is, too; BrokerError: it does not start, or runs on another port.
    """
    from streamydb.local.broker import find_broker, start_detached
    from streamydb.local.broker.config import HEAP_MB_DEFAULT, SMALL_HEAP_MB

    settings = target.settings
    if settings.bootstrap is not None:
        if port is not None:
            fail(
                f"--port is that of the embedded broker, and {target.database} is at "
                f"{settings.bootstrap}: leave --port out", EXIT_USAGE,
            )  # fmt: skip
        target.must_listen()
        return
    title = "Kafka broker" if find_broker(settings.home) is None else "Kafka broker (running)"
    with phases.phase(title) as phase:
        phase.note("starting the JVM")
        heap_mb = SMALL_HEAP_MB if takes_little(small) else HEAP_MB_DEFAULT
        phase.outcome = start_detached(settings.home, port=port, heap_mb=heap_mb).bootstrap


@contextmanager
def _stopped_if_it_fails(target: Target, phases: Phases) -> Iterator[None]:
    """Run a block; if a pipeline does not start there, stop what has begun to read the database."""
    from streamydb.cli.front import stop_front

    try:
        yield
    except Failure:
        stop_front(target.settings.home, target.database, phases)
        raise


def _first_transaction(target: Target, phases: Phases) -> Result:
    """Run a transaction through the database and return its result. Raises Failure: none came, or
    the pipeline has ended.
    """
    from streamydb.cli.calls import call
    from streamydb.cli.launch import require_pipeline

    with phases.phase("First transaction") as phase:
        phase.note("waiting for its result")
        payload = {
            "updates": [{"op": "put", "key": HELLO_KEY, "value": "world"}],
            "reads": [HELLO_KEY],
        }
        result = call(
            target, payload, FIRST_RESULT_S_MAX,
            lambda: require_pipeline(target, "ended before the first result"),
        )  # fmt: skip
        phase.outcome = f"{result.status}, seq {result.seq}, reads {_compact(result.reads)}"
    return result


def _compact(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _tell_next(target: Target, *, archived: bool) -> None:
    option = "".join(f" {shlex.quote(word)}" for word in target.options())
    streamydb = _program()
    say()
    say(f"Database {target.database} is ready at {target.bootstrap}. Try:")
    say(f"  {streamydb} txn{option} --put greeting='\"hi\"' --add visits=1 --read visits")
    say(f"  {streamydb} txn{option} --add alice=-5,min=0 --add bob=5     (aborts: bound-violated)")
    url = target.files.facade_url()
    if url is not None:
        say(f"  curl {url}/v1/kv/{HELLO_KEY}")
        say(f"  {url} in a browser: live figures, keys and their past, transactions, changes")
    say(f"  {streamydb} watch changes{option} --from-start --follow")
    say(f"  {streamydb} check{option}        proves the database against a serial replay")
    say(f"  {streamydb} status{option}  |  {streamydb} doctor{option}  |  {streamydb} down{option}")
    if archived:
        say(
            "Later starts take a third less: a process in the background archives what Java loads. "
            "(Once, while processors are idle; STREAMYDB_CLASS_DATA=false: never.)"
        )


def _program() -> str:
    if shutil.which("streamydb"):
        return "streamydb"
    program = Path(sys.argv[0])
    folder = Path.cwd()
    if program.name != "streamydb":
        return "python -m streamydb.cli"
    return shlex.quote(
        str(program.relative_to(folder) if program.is_relative_to(folder) else program)
    )
