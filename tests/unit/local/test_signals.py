"""A terminal that is closed (SIGHUP) ends what runs in it as SIGTERM does, but for `nohup`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_COMMAND = """
import signal
from streamydb.local.signals import unwinding

with unwinding():
    try:
        signal.raise_signal(signal.{first})
    finally:
        print("is undone")
        signal.raise_signal(signal.SIGHUP)
        print("as a whole", flush=True)
print("never said")
"""

_SERVICE = """
import signal
from streamydb.local.signals import StopSignals

told = []
with StopSignals(told.append):
    for name in "SIGHUP", "SIGHUP", "SIGTERM":
        signal.raise_signal(getattr(signal, name))
print(*told)
"""

_NOHUP = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from streamydb.local.signals import stop_event, unwinding

with unwinding():
    signal.raise_signal(signal.SIGHUP)
with stop_event() as stop:
    signal.raise_signal(signal.SIGHUP)
print(stop.is_set(), signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)
"""

_SAYING = """
import signal, sys
from pathlib import Path
from streamydb.local.signals import stop_event, unwinding

with unwinding():
    try:
        print("ready", flush=True)
        if sys.argv[1] == "command":
            signal.pause()
        with stop_event() as stop:
            stop.wait()
    finally:
        print("is undone", file=sys.stderr, flush=True)
        print("is undone", flush=True)
        Path(sys.argv[2]).write_text("as a whole")
"""


@pytest.fixture(autouse=True)
def _not_under_nohup() -> Iterator[None]:
    """Tests may themselves be run so that a closed terminal does not end them."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("first", ["SIGTERM", "SIGHUP"])
def test_a_command_undoes_what_is_half_made(first: str) -> None:
    done = run(_COMMAND.format(first=first))
    assert done.stdout.splitlines() == ["is undone", "as a whole"], done.stderr
    assert done.returncode == -getattr(signal, first)


def test_a_service_is_told_once_of_a_terminal_that_was_closed() -> None:
    assert run(_SERVICE).stdout == "1 2\n"


def test_what_nohup_runs_goes_on() -> None:
    assert run(_NOHUP).stdout == "False True\n"


@pytest.mark.parametrize("kind", ["command", "service"])
def test_what_is_said_to_a_terminal_that_was_closed_stops_nothing(
    kind: str, tmp_path: Path
) -> None:
    master, slave = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", _SAYING, kind, str(tmp_path / "done")], stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        said = b""
        while b"ready" not in said:
            said += os.read(master, 1024)
        os.close(master)
        process.send_signal(signal.SIGHUP)
        try:
            process.wait(60)
        finally:
            process.kill()
    assert (tmp_path / "done").read_text() == "as a whole"
