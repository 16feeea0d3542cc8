"""A process that has compiled kernels begins anew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamydb.local import own_process
from streamydb.local.own_process import compiles, renew

KERNEL = """
from streamydb.frames.jit import kernel

@kernel
def twice(number):
    return 2 * number
"""

SERVICE = """
import os, sys
from streamydb.local.own_process import compiles, renew
import kernels
if compiles(lambda: kernels.twice(2)):
    print("compiled", os.getpid(), sys.argv[1:], flush=True)
    renew()
print("serves", os.getpid(), sys.argv[1:], flush=True)
"""


def started(folder: Path) -> list[list[str]]:
    """Run the service to its end; return what it said."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", "service", "--of", "bank"], capture_output=True, text=True,
        timeout=120, check=False, cwd=folder, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line.split(maxsplit=2) for line in done.stdout.splitlines()]


def test_a_process_that_has_compiled_begins_anew_with_its_id_and_command(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNEL)
    (tmp_path / "service.py").write_text(SERVICE)
    (compiled, number, command), served = started(tmp_path)
    assert (compiled, command) == ("compiled", "['--of', 'bank']")
    assert served == ["serves", number, command]
    assert [line[0] for line in started(tmp_path)] == ["serves"]  # it is in the cache


def test_it_is_not_done_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class AnewError(Exception):
        pass

    def anew(*_given: object) -> None:
        raise AnewError

    monkeypatch.setattr(os, "execv", anew)
    monkeypatch.setenv(own_process._RENEWED, "1")  # of another process
    with pytest.raises(AnewError):
        renew()
    renew()


def test_what_is_in_no_cache_is_compiled() -> None:
    assert not compiles(lambda: None)
