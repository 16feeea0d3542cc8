"""Being told to stop: signals that take no lock, and an end within stated times."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from streamydb.pipeline.run import mark_between_batches, may_end

_POLLING = """
import signal, sys, threading
from streamydb.local.signals import stop_event

lines = set()

def interrupt(frame, event, argument):
    if frame.f_code.co_filename != threading.__file__:
        return None
    if event == "line" and frame.f_lineno not in lines:
        lines.add(frame.f_lineno)
        signal.raise_signal(signal.SIGTERM)
    return interrupt

with stop_event() as stop:
    print("ready", flush=True)
    sys.settrace(interrupt)
    for _ in range(3):
        stop.wait(0.01)
        stop.clear()
    sys.settrace(None)
    signal.raise_signal(signal.SIGTERM)
    stop.wait()
print(len(lines), flush=True)
"""

_HANGING = """
import sys, threading
from streamydb.pipeline import shutdown

shutdown.START_S = shutdown.GIVE_UP_S = shutdown.LEAVE_S = 0.3
told = lambda **fields: print(fields, flush=True)
with shutdown.PipelineShutdown(0.3, told, lambda: print("killed", flush=True)) as watch:
    stage = sys.argv[1]
    if stage != "starting":
        watch.runs()
    if stage == "leaving":
        watch.leaves(0)
    print("ready", flush=True)
    lock = threading.Lock()
    lock.acquire()
    def hangs_here():
        lock.acquire()
    hangs_here()
"""

_FINISHING = """
import os
from streamydb.pipeline import shutdown

def say(what):
    os.write(1, f"{what}\\n".encode())  # a whole line, whichever thread says it

with shutdown.PipelineShutdown(60, lambda **fields: say(fields), lambda: None) as watch:
    watch.runs()
    say("ready")
    watch.requested.wait()
    say("requested")
    watch.give_up.wait()
    say("given up")
    watch.leaves(0)
"""


_LATE = """
import threading
from streamydb.pipeline import shutdown
from streamydb.pipeline.progress import StatusWriter

status, ended, told = StatusWriter(None, "bank"), threading.Event(), threading.Event()
def tell(**fields):
    ended.wait()
    status.update(**fields)
    told.set()

with shutdown.PipelineShutdown(60, tell, lambda: None) as watch:
    print("ready", flush=True)
    watch.requested.wait()
    status.update(state="stopped")
    ended.set()
    told.wait()
print(status.status.state)
"""


@contextmanager
def script(text: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script that says when it is ready; hand it out then."""
    with subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()  # SIGTERM may be what it does not hear


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for the end; the rest of what it said: `communicate` loses what `readline` has taken."""
    assert process.stdout is not None
    assert process.stderr is not None
    process.wait(timeout=30)
    return process.stdout.read(), process.stderr.read()


def test_all_that_a_script_says_is_heard() -> None:
    with script("print('ready\\nmore')") as process:
        assert ended(process) == ("more\n", "")


@pytest.mark.fault(44, "SIGTERM in each step of a main thread that polls", "heard; nothing hangs")
def test_a_signal_takes_no_lock_that_the_main_thread_may_hold(
    injected: Callable[[int], None],
) -> None:
    """`Event.set` in a handler hangs when it interrupts `Event.wait` where that holds its lock."""
    with script(_POLLING) as process:
        out, error = ended(process)
    assert process.returncode == 0, error
    assert int(out) >= 10
    injected(int(out))


@pytest.mark.fault(44, "SIGTERM while the main thread hangs: starting, running, leaving")
@pytest.mark.parametrize(
    ("stage", "code", "state"), [("starting", 0, True), ("running", 1, True), ("leaving", 0, False)]
)
def test_what_hangs_is_ended_by_force_and_explained(stage: str, code: int, *, state: bool) -> None:
    with script(_HANGING, stage) as process:
        if stage != "leaving":
            process.send_signal(signal.SIGTERM)
        out, error = ended(process)
    assert process.returncode == code
    assert "hangs_here" in error  # its stack
    assert f"while {stage}" in out
    assert ("{'state': 'stopping'}" in out) == state
    assert out.rstrip().endswith("killed")


def test_who_has_stopped_is_not_stopping_again() -> None:
    """The signal's thread may be late to say so: the main one had nothing to finish."""
    with script(_LATE) as process:
        process.send_signal(signal.SIGTERM)
        out, error = ended(process)
    assert (process.returncode, out) == (0, "stopped\n"), error


@pytest.mark.fault(44, "SIGTERM twice", "the batch is given up, cleanly")
def test_a_second_signal_gives_the_batch_up() -> None:
    with script(_FINISHING) as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGTERM)
        lines = {process.stdout.readline().strip() for _ in range(2)}
        assert lines == {"{'state': 'stopping'}", "requested"}
        process.send_signal(signal.SIGTERM)
        out, error = ended(process)
    assert (process.returncode, out, error) == (0, "given up\n", "")


_TRIGGER = "org.apache.spark...MicroBatchExecution.executeOneBatch(MicroBatchExecution.scala:500)\n"
_PLANNING = f"...IncrementalExecution...\n...MicroBatchExecution.runBatch\n{_TRIGGER}"
_JOB = f"org.apache.spark.scheduler.DAGScheduler.runJob(DAGScheduler.scala:1)\n{_PLANNING}"
_SLEEPING = f"java.base@17/java.lang.Thread.sleep(Native Method)\n{_TRIGGER}"
_OFFSETS = f"java.base@17/java.lang.Thread.sleep(Native)\n{_PLANNING}"


class Lock:
    """A lock as the JVM's, free or not."""

    def __init__(self, *, free: bool = True) -> None:
        self.free = free
        self.held = False

    def tryLock(self) -> bool:  # noqa: N802 - Java's name
        self.held = self.free
        return self.free

    def unlock(self) -> None:
        assert self.held
        self.held = False


def marked(*stacks: str) -> tuple[bool, list[str]]:
    """Mark a query whose thread is seen with these stacks; whether it was, and what was set."""
    lock, said, give_up = Lock(), list[str](), threading.Event()
    seen = iter(["", *stacks])

    def stack() -> str:
        found = next(seen, None)
        if found is None:
            give_up.set()
            return _PLANNING
        return found

    def set_state(name: str) -> None:
        assert lock.held
        said.append(name)

    return mark_between_batches(give_up, lock, stack, set_state), said


def test_a_query_is_marked_as_ended_only_where_that_interrupts_nothing() -> None:
    assert [may_end(stack) for stack in (_JOB, _SLEEPING, "")] == [True] * 3
    assert [may_end(stack) for stack in (_PLANNING, _TRIGGER, _OFFSETS)] == [False] * 3
    assert marked(_PLANNING, _PLANNING, _JOB, _JOB) == (True, ["TERMINATED"])
    assert marked(_SLEEPING, _SLEEPING) == (True, ["TERMINATED"])
    assert marked(_JOB, "") == (True, ["TERMINATED"])
    assert marked(_PLANNING, _TRIGGER) == (False, [])


def test_a_mark_that_came_too_late_is_taken_back() -> None:
    """The thread woke up between the look and the mark: it plans a batch, which would be lost."""
    assert marked(_SLEEPING, _TRIGGER, _JOB, _JOB) == (True, ["TERMINATED", "ACTIVE", "TERMINATED"])


def test_a_query_that_waits_for_kafka_has_no_batch_to_finish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streamydb.pipeline.run._FETCHING_S_MAX", 0.0)
    never = threading.Event()
    assert not mark_between_batches(never, Lock(free=False), lambda: _JOB, lambda _: None)
