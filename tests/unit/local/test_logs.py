"""The logs of background processes: their lengths and numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from streamydb.local import processes
from streamydb.local.launcher import LOGS_KEPT_MAX, OUTPUT, shorten

WRITES = """\
import subprocess, sys
from pathlib import Path
from streamydb.local.launcher import shorten
child = [sys.executable, "-c", "print('the child', flush=True)"]
for round in range(int(sys.argv[2])):
    print(f"round {round}", "x" * 100, flush=True)
    subprocess.run(child, check=True)
    shorten(Path(sys.argv[1]), 90)
    shorten(Path(sys.argv[1]), 90)
"""


def test_a_log_is_begun_anew_while_it_is_written_by_several(tmp_path: Path) -> None:
    log, rounds = tmp_path / "x.log", LOGS_KEPT_MAX + 3
    with log.open("ab") as output:
        command = [sys.executable, "-c", WRITES, str(log), str(rounds)]
        subprocess.run(command, check=True, stdout=output)
    assert log.read_bytes() == b""
    kept = [tmp_path / f"x.log.{number}" for number in range(1, LOGS_KEPT_MAX + 1)]
    assert sorted(tmp_path.iterdir()) == [log, *kept]
    for number, path in enumerate(kept, 1):
        text = f"round {rounds - number} {'x' * 100}\nthe child\n"
        assert path.read_text("utf-8") == text


def test_only_the_own_output_is_shortened(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"another one's" * 100)
    shorten(log, 1)
    assert list(tmp_path.iterdir()) == [log]


def test_a_background_process_appends_to_the_log_that_it_is_told(tmp_path: Path) -> None:
    program = "import os, sys; os.truncate(os.environ[sys.argv[1]], 0); print('again')"
    began = "print('begun', flush=True); "
    record = processes.start(tmp_path, "it", [sys.executable, "-c", began + program, OUTPUT])
    os.waitpid(record.pid, 0)
    assert Path(record.log).read_bytes() == b"again\n"
