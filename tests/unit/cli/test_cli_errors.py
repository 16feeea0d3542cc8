"""What a command says when the machine does not let it go on."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.cli.common import Commands

FULL = os.strerror(errno.ENOSPC)
MORE = "; make room, and run the command again"


def said(error: Exception) -> tuple[int, str, BaseException | None]:
    """Exit code, what standard error has, and what is no message but a traceback."""
    failing = typer.Typer(cls=Commands)

    @failing.callback()
    def all_commands() -> None:
        pass

    @failing.command()
    def fail() -> None:
        raise error

    done = CliRunner().invoke(failing, ["fail"])
    raised = None if isinstance(done.exception, SystemExit) else done.exception
    return done.exit_code, done.stderr, raised


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, FULL), f"{FULL}{MORE}"),
        (OSError(errno.ENOSPC, FULL, "/b/x"), f"/b/x: {FULL}{MORE}"),
        (PermissionError(errno.EACCES, "Permission denied", "/root"), "/root: Permission denied"),
        (FileNotFoundError(errno.ENOENT, "No such file", Path("/no")), "/no: No such file"),
    ],
)
def test_a_file_or_a_disk_is_told_in_one_line(error: OSError, message: str) -> None:
    assert said(error) == (1, f"error: {message}\n", None)


@pytest.mark.parametrize("error", [OSError(errno.EBADF, "Bad file descriptor"), KeyError("bug")])
def test_a_bug_keeps_its_traceback(error: Exception) -> None:
    assert said(error)[2] is error


@pytest.mark.parametrize(
    ("command", "code"), [("limits", 0), ("version --json", 0), ("nonsense", 2), ("txn --put x", 2)]
)
def test_closed_streams_are_empty_ones(command: str, code: int) -> None:
    words = [sys.executable, "-m", "streamydb.cli", *command.split()]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words]
    assert subprocess.run(closed, check=False).returncode == code


def test_what_a_closed_stream_hides_is_no_fault() -> None:
    words = [sys.executable, "-m", "streamydb.cli", "limits"]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *words]
    done = subprocess.run(closed, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "command",
    [
        "txn none", "procedures check none.py", "procedures check none.txt",
        "procedures deploy none.py", "constraints declare @none", "whatif --module shop=none.py",
        "whatif --constraint @none", "broker --properties none",
    ],
)  # fmt: skip
def test_a_file_that_is_named_and_not_there(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        app,
        [
            *command.split(),
            *([] if command.startswith("procedures check") else ["--home", str(tmp_path)]),
        ],
    )
    assert done.exit_code == 2
    assert "none" in done.stderr
    assert "Errno" not in done.stderr


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["up", "--home", str(tmp_path / "file" / "home")])
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].endswith("Not a directory")
    assert done.stderr.splitlines()[-1].startswith(f"error: {tmp_path}")


TERMINATED = """\
import signal, sys
from pathlib import Path
import typer
from streamydb.cli.common import Commands
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in jobs in the background
app = typer.Typer(cls=Commands)

@app.callback()
def all_commands() -> None:
    pass

@app.command()
def work(file: Path) -> None:
    try:
        file.write_text("half")
        print("begun", flush=True)
        while True:
            signal.pause()
    finally:
        file.unlink()

app()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_ended_leaves_nothing_half_made(
    number: signal.Signals, tmp_path: Path
) -> None:
    """SIGTERM ends it as it ends any program: who asked for it can tell."""
    half = tmp_path / "half"
    words = [sys.executable, "-c", TERMINATED, "work", str(half)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        try:
            code = process.wait(60)
        finally:
            process.kill()
    assert code in {-signal.SIGTERM, 1, 130}
    assert (code == -signal.SIGTERM) == (number == signal.SIGTERM)
    assert not half.exists()
