"""`python -m streamydb.pipeline`: run the pipeline from a shell or under `spark-submit`."""

from __future__ import annotations

import argparse
import hashlib
import logging
import signal
import sys
from pathlib import Path

from streamydb.errors import ConfigurationError, StreamyError
from streamydb.limits import PIPELINE_NAME, PIPELINE_NAME_RULE, PLAN_RECORDS_MAX, STANDBY
from streamydb.local.disk import said_of
from streamydb.pipeline.config import SMALL_MAX_OFFSETS, SMALL_SPARK, PipelineConfig, default_local
from streamydb.pipeline.session import launched
from streamydb.settings import Settings


def parse(arguments: list[str], *, submitted: bool = False) -> PipelineConfig:
    """The configuration that the arguments and the environment give.

    Args:
        arguments: without the program's name.
        submitted: `spark-submit` starts us, so it has the master.
    """
    options = _parser(submitted=submitted).parse_args(arguments)
    logging.basicConfig(
        level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    by_setting = {
        each: value for each, value in vars(options).items() if each in Settings.model_fields
    }
    settings = Settings(**{each: value for each, value in by_setting.items() if value is not None})
    asked = settings.model_fields_set
    name = options.name if options.name is not None else STANDBY if options.standby else ""
    if name and not PIPELINE_NAME.fullmatch(name):
        raise ConfigurationError(f"--name {name!r}: {PIPELINE_NAME_RULE}")
    local = (options.local or default_local(settings.home)) / (f"@{name}" if name else "")
    master = None if submitted else options.master
    known = [] if settings.procedures is None else [settings.procedures]
    spark_conf = {
        **(SMALL_SPARK if options.small else {}), **dict(_setting(text) for text in options.conf),
    }  # fmt: skip
    if options.small and settings.max_offsets_per_trigger is None:
        settings = settings.model_copy(update={"max_offsets_per_trigger": SMALL_MAX_OFFSETS})
    store = options.checkpoint if "://" in options.checkpoint else None
    checkpoint = Path(options.checkpoint)
    if store:  # the folder on this machine for what a start needs of the checkpoint
        checkpoint = local / f"checkpoint-{hashlib.sha256(store.encode()).hexdigest()[:16]}"
    return PipelineConfig(
        settings,
        checkpoint.resolve(),
        master,
        local,
        options.status_file,
        options.plan_limit,
        spark_conf,
        name,
        options.standby,
        tuple(path.resolve() for path in options.modules or known),
        options.from_state,
        store,
        gears=settings.gear == "both" and not (options.small and "gear" not in asked),
        small=options.small,
    )


def _parser(*, submitted: bool) -> argparse.ArgumentParser:
    """Return the parser of the arguments. One with a setting's name wins over the environment.

    Not typer, which wants a function with a parameter for each: people type `streamydb pipeline`,
    which passes these on, as does the job of `spark-submit`.
    """
    parser = argparse.ArgumentParser(
        "streamydb-pipeline", description="Execute the transactions of a database, in order."
    )
    add = parser.add_argument
    add("--database", help="name of the database")
    add("--bootstrap", help="Kafka's address, host:port[,host:port]")
    add("--checkpoint", type=_folder, required=True, help="folder of the state, or s3a://bucket/…")
    if not submitted:
        add("--master", default="local[*]", help="Spark's master URL")
    add("--shards", type=int, help="slices of the keys; `streamydb resize` changes them")
    add("--partitions", type=int, help="of the log when the database was created [as it is now]")
    add("--grouping", choices=("planner", "single"))
    add(
        "--gear",
        choices=("micro-batch", "both"),
        help="both: a real-time query answers while little comes (one shard, one partition)",
    )
    add("--standby", action="store_true", help="follow silently, take over when needed")
    add("--name", help="tells pipelines over one log apart [with --standby: standby]")
    add("--digest-interval", type=int, help="transactions from digest to digest, fixed for good")
    add("--id-window", type=int, help="seqs an id is remembered for")
    add(
        "--max-offsets",
        type=int,
        dest="max_offsets_per_trigger",
        help="most transactions read per micro-batch",
    )
    add(
        "--plan-limit",
        type=_plan_limit,
        default=PLAN_RECORDS_MAX,
        help="most transactions in one plan",
    )
    add(
        "--from-state",
        type=Path,
        metavar="FOLDER",
        help="a backup (or a state of one) that a new checkpoint begins with, not the whole log",
    )
    add("--local", type=Path, help="folder of the executors' caches, on a local disk")
    add("--status-file", type=Path, help="file that tells how the pipeline is")
    add("--metrics-port", type=int, help="serve Prometheus metrics here, on STREAMYDB_METRICS_HOST")
    add(
        "--procedures",
        type=Path,
        action="append",
        dest="modules",
        metavar="FOLDER",
        help="folder (or file) with modules of stored procedures, the same on every executor",
    )
    add("--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting")
    add("--small", action="store_true", help="take little memory, and do less at a time")
    add("--log-level", default="INFO")
    return parser


def _folder(text: str) -> str:
    """Return a folder, or a URL of an object store without a slash at its end."""
    if text.startswith("file:"):
        raise argparse.ArgumentTypeError(f"{text}: name a folder by its path")
    return text.rstrip("/") or text


def _plan_limit(text: str) -> int:
    """A number of transactions; with none in a plan, none would ever be executed."""
    number = int(text)
    if not 1 <= number <= PLAN_RECORDS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: it is 1 to {PLAN_RECORDS_MAX}")
    return number


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise ConfigurationError(f"--conf {text!r} is not of the form spark.name=value")
    return name, value


def main(arguments: list[str] | None = None, *, submitted: bool = False) -> int:
    """Run the pipeline; return the process's exit code."""
    try:
        config = parse(sys.argv[1:] if arguments is None else arguments, submitted=submitted)
        if config.large_record.exists():
            from streamydb.pipeline.large_records import with_room

            config = with_room(config)
        launch = launched(config)
        from streamydb.pipeline.main import run  # takes half a second, in which Spark starts

        return run(config, launch)
    except KeyboardInterrupt:  # a run handles signals itself, but that one has not begun
        sys.stderr.write("streamydb pipeline: stopped before it began\n")
        return 128 + signal.SIGINT
    except (StreamyError, ValueError, OSError) as error:
        said = said_of(error) if isinstance(error, OSError) else str(error)
        if said is None:
            raise
        sys.stderr.write(f"streamydb pipeline: {said}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
