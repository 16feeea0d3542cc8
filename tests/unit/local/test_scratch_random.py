"""Folders of living processes are never touched, those of killed ones go,
whatever happens beside.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamydb.local.file_lock import sweep
from tests.support.open_files import open_files

CHILD = """\
import sys
from pathlib import Path
from streamydb.local.file_lock import scratch_folder, sweep
base = Path(sys.argv[1])
for line in sys.stdin:
    print(scratch_folder(base) if line == "make\\n" else sweep(base), flush=True)
"""


class Child:
    """A process with folders of its own."""

    def __init__(self, base: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(base)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.folders: list[Path] = []

    def ask(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        assert said, "it has failed"
        return said

    def end(self, *, killed: bool) -> None:
        if killed:
            self.process.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(30) == (-9 if killed else 0)
        self.process.stdout.close()


def swept(base: Path, done: threading.Event) -> None:
    """Clean again and again."""
    while not done.is_set():
        sweep(base)


class Machine:
    """A folder for temporary files, and the processes that use it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.dice = random.Random(f"scratch {seed}")
        self.base, self.outside = folder / "tmp", folder / "outside"
        for made in (self.base, self.outside):
            made.mkdir()
        (self.outside / "kept").write_text("kept")
        self.strange = [self.base / "other", self.base / "streamydb-scratch-file"]
        self.strange[0].mkdir()
        self.strange[1].write_text("a file")
        (self.base / "streamydb-scratch-link").symlink_to(self.outside)
        self.strange.append(self.base / "streamydb-scratch-link")
        self.children: list[Child] = []
        self.dead: list[Path] = []
        self.pool = ThreadPoolExecutor(4)

    def start(self) -> None:
        """A process starts and makes folders, perhaps while others are removed."""
        child = Child(self.base)
        self.children.append(child)
        wanted, done = self.dice.choice([1, 3, 20]), threading.Event()
        beside = [self.pool.submit(swept, self.base, done) for _ in range(self.dice.choice([0, 2]))]
        try:
            for _ in range(wanted):
                child.ask("make")
            child.folders = [Path(child.answer()) for _ in range(wanted)]
        finally:
            done.set()
        for each in beside:
            each.result()
        for folder in child.folders:
            self.fill(folder)

    def fill(self, folder: Path) -> None:
        """What Spark writes, and what nobody should."""
        inner = folder / "spark-1" / "state"
        inner.mkdir(parents=True)
        for number in range(self.dice.choice([1, 9])):
            (inner / f"{number}.sst").write_bytes(b"values")
        (inner / "link").symlink_to(self.outside)
        if self.dice.random() < 0.3:
            (inner / "0.sst").chmod(0)
        if self.dice.random() < 0.5:
            os.utime(folder, (0, 0))

    def end(self) -> None:
        """A process ends, or is killed."""
        if self.children:
            child = self.children.pop(self.dice.randrange(len(self.children)))
            killed = self.dice.random() < 0.8
            child.end(killed=killed)
            assert killed or not any(each.exists() for each in child.folders)
            self.dead += child.folders if killed else []

    def leave(self) -> None:
        """A process was killed before it had locked its folder, or while it removed one."""
        made = self.base / f"streamydb-scratch-{self.dice.randrange(10**6)}"
        made.mkdir(exist_ok=True)
        self.dead.append(made)

    def lose(self) -> None:
        """Somebody else removes some of it."""
        if self.dead:
            path = self.dice.choice(self.dead)
            target = path if self.dice.random() < 0.5 else path / "spark-1"
            shutil.rmtree(target, ignore_errors=True)

    def forbid(self) -> None:
        """Nobody may read a folder for a while; root may."""
        there = [path for path in self.dead if path.exists()]
        if there:
            path = self.dice.choice(there)
            path.chmod(0)
            self.clean()
            if path.exists():
                path.chmod(0o700)

    def clean(self) -> None:
        """Some clean at once, beside somebody else."""
        most = self.dice.choice([0, 1, 2])
        asked = self.dice.sample(self.children, min(len(self.children), most))
        for child in asked:
            child.ask("sweep")
        beside: list[Callable[[], None]] = [self.lose, lambda: sweep(self.base)]
        some = [self.pool.submit(self.dice.choice(beside)) for _ in range(self.dice.choice([0, 2]))]
        sweep(self.base)
        for each in some:
            each.result()
        for child in asked:
            child.answer()

    def look(self) -> None:
        """Clean once more, alone; see what is there."""
        sweep(self.base)
        living = [folder for child in self.children for folder in child.folders]
        assert sorted(self.base.iterdir()) == sorted([*living, *self.strange])
        self.dead.clear()
        for folder in living:
            assert (folder / "spark-1" / "state" / "0.sst").exists()
        assert (self.outside / "kept").read_text() == "kept"


@pytest.mark.parametrize("seed", range(6))
def test_folders_of_the_living_stay_and_those_of_the_killed_go(seed: int, tmp_path: Path) -> None:
    machine = Machine(seed, tmp_path)
    actions = [
        machine.start, machine.end, machine.end, machine.leave, machine.lose, machine.forbid,
        machine.clean,
    ]  # fmt: skip
    try:
        machine.start()
        for _ in range(12):
            machine.dice.choice(actions)()
            if machine.dice.random() < 0.4:
                machine.look()
        while machine.children:
            machine.end()
        machine.look()
    finally:
        for child in machine.children:
            child.end(killed=True)
        machine.pool.shutdown()
    assert open_files(tmp_path) == 0
