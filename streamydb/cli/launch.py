"""Starting a database's pipeline in the background and waiting until it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamydb.cli.common import fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamydb.cli.phases import Phase
    from streamydb.cli.target import Target
    from streamydb.local.folder import PipelineStatus
    from streamydb.local.fork_server import ForkServer
    from streamydb.local.processes import ProcessRecord

POLL_S = 0.1  # how often the status file is looked at while a pipeline starts, in seconds


def pipeline_command(
    target: Target, master: str, extra: Sequence[str] = (), name: str = ""
) -> list[str]:
    """The command line that runs the pipeline of this database in the foreground. ``name``: of one
    of several pipelines over the log; each has a checkpoint of its own.
    """
    from streamydb.local.launcher import module_command

    settings, files = target.settings, target.files
    record = files.record()
    fixed = {} if record is None else {
        "partitions": record.partitions, "id_window": record.id_window,
        "digest_interval": record.digest_interval,
    }  # fmt: skip
    command = module_command(
        "streamydb.pipeline", database=target.database, bootstrap=target.bootstrap,
        checkpoint=files.checkpoint_of(name), master=master, shards=settings.shards,
        grouping=settings.grouping, status_file=files.status_file_of(name),
        procedures=target.procedures, name=name or None, **fixed,
    )  # fmt: skip
    return [*command, *extra]


def start_pipeline(
    target: Target, master: str, extra: Sequence[str] = (), forks: ForkServer | None = None
) -> ProcessRecord:
    """Start the pipeline in the background; the status of an earlier run is dropped first.

    ``forks``: forks it, if it can.
    """
    from streamydb.local import processes
    from streamydb.local.folder import PIPELINE

    target.files.status_file.unlink(missing_ok=True)
    command = pipeline_command(target, master, extra)
    environment = {"STREAMYDB_HOME": str(target.settings.home)}
    return processes.start(target.files.folder, PIPELINE, command, environment, forks)


def wait_until_ready(target: Target, timeout_s: float, phase: Phase) -> PipelineStatus:
    """Wait until the pipeline says that it runs. Raises Failure: it ended or failed (with the end
    of its log), or the time is up.
    """
    from streamydb.local import launcher

    def running() -> PipelineStatus | None:
        status = require_pipeline(target, "did not start")
        phase.note(_progress(status))
        return status if status.state == "running" else None

    status = launcher.wait_until(running, timeout_s, POLL_S)
    if status is None:
        fail(
            f"the pipeline is not ready after {timeout_s:.0f} s "
            f"({_progress(target.files.status())}); it goes on in the background: look at "
            "`streamydb status`, give it more time with --timeout, or stop it with `streamydb "
            f"down`.\n{_end_of_log(target)}"
        )
    return status


def require_pipeline(target: Target, otherwise: str) -> PipelineStatus:
    """Return the status of the pipeline, which runs or starts.
    Raises Failure: it has ended (with the end of its log); ``otherwise``: what that means.
    """
    status = target.files.status()
    if status.state == "stopped" and status.pid is not None:
        fail(f"the pipeline {otherwise}: it was told to stop meanwhile, as by `streamydb down`")
    if status.state in {"failed", "stopped"}:
        reason = f": {status.error}" if status.error else ""
        fail(f"the pipeline {otherwise}{reason}\n{_end_of_log(target)}\n{_advice()}")
    return status


def _end_of_log(target: Target) -> str:
    from streamydb.local import launcher, processes
    from streamydb.local.folder import PIPELINE

    return launcher.end_of_log(processes.log_path(target.files.folder, PIPELINE))


def _progress(status: PipelineStatus) -> str:
    if status.pid is None:
        return "starting Python"
    if status.waiting is not None:
        return f"{status.state}, waiting for Kafka: {status.waiting}"
    return status.state if status.batch is None else f"{status.state}, batch {status.batch}"


def _advice() -> str:
    return "`streamydb doctor` names what is wrong with the installation and the topics."
