"""docs/tutorial.md, read as its reader does: files are saved and changed, sessions typed."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

import streamydb
from streamydb.local.broker import free_port
from streamydb.local.launcher import LocalProcess
from streamydb.testing.database import wait_for

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "tutorial.md"
EXAMPLE: Final = ROOT / "examples" / "ticket_shop"

_BLOCK: Final = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL: Final = {"make", "source", "mkdir", "cd"}
"""Commands that prepare the folder and the database, which the test has done."""


class Block(NamedTuple):
    """A block of the page: its language, the word after it, and its text."""

    language: str
    name: str
    text: str


def blocks() -> list[Block]:
    """The blocks of the page."""
    return [Block(*found) for found in _BLOCK.findall(PAGE.read_text("utf-8"))]


def finished() -> dict[str, str]:
    """The files as they are at the end of the page."""
    files: dict[str, str] = {}
    for block in blocks():
        if "." in block.name:
            files[block.name] = changed(files.get(block.name, ""), block.text)
    return files


def changed(source: str, block: str) -> str:
    """A file after a block was typed into it.

    Imports and functions replace those of the same name; a new function follows the one that is
    before it in the block, or comes last.
    """
    if not source:
        return block
    before: str | None = None
    for name, text in _named(block):
        parts = _parts(source)
        if name in parts:
            first, last = parts[name]
            lines = source.splitlines()
            source = "\n".join([*lines[: first - 1], text, *lines[last:]]) + "\n"
        else:
            lines = source.splitlines()
            at = parts[before][1] if before in parts else len(lines)
            source = "\n".join([*lines[:at], "", "", text, *lines[at:]]) + "\n"
        before = name if text.startswith("def") else before
    return source


def _parts(source: str) -> dict[str, tuple[int, int]]:
    """Name -> first and last line of each import and function."""
    parts = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            parts[node.name] = (node.lineno, node.end_lineno or 0)
        elif isinstance(node, ast.ImportFrom):
            parts[f"from {node.module}"] = (node.lineno, node.end_lineno or 0)
    return parts


def _named(block: str) -> Iterator[tuple[str, str]]:
    lines = block.splitlines()
    for name, (first, last) in _parts(block).items():
        yield name, "\n".join(lines[first - 1 : last])


class Reader:
    """Somebody who follows the page, in a folder of his own.

    Args:
        folder: where the shop is made.
        database: the address of the facade.
        streamydb: runs a command of `streamydb`.
    """

    def __init__(
        self,
        folder: Path,
        database: str,
        streamydb: Callable[..., subprocess.CompletedProcess[str]],
    ) -> None:
        """Begin."""
        self.folder = folder
        self.port = free_port()
        self._streamydb = streamydb
        self._environment = environment(database, self.port)
        folder.mkdir()

    def follow(self, beside: Callable[[str], AbstractContextManager[None]]) -> int:
        """Do all that the page says; return the number of sessions and commands.

        Args:
            beside: what goes on from when the shop is open, given its address, to the end.
        """
        done = 0
        with ExitStack() as opened:
            for block in blocks():
                if "." in block.name:
                    self._save(block)
                elif block.language == "pycon":
                    self._type(block.text)
                elif block.name == "server":
                    shop = opened.enter_context(serving(self.folder, self._environment))
                    opened.enter_context(beside(shop))
                elif block.language == "console":
                    self._call(block.text)
                done += "." not in block.name
        return done

    def _save(self, block: Block) -> None:
        path = self.folder / block.name
        old = path.read_text("utf-8") if path.exists() else ""
        path.write_text(changed(old, block.text), "utf-8")

    def _type(self, session: str) -> None:
        """Have a session of Python print what it says."""
        (self.folder / "session").write_text(session, "utf-8")
        done = self._python("-m", "doctest", "-o", "ELLIPSIS", "session")
        assert done.returncode == 0, done.stdout + done.stderr

    def _call(self, text: str) -> None:
        """Run commands, and compare what they print."""
        for part in text.split("$ ")[1:]:
            command, *said = part.strip().splitlines()
            program, *words = shlex.split(command)
            if program in _SHELL:
                continue
            if program == "cp":
                self._copy(*words)
                continue
            done = self._python(*words) if program == "python" else self._streamydb(*words)
            assert done.returncode == 0, done.stderr
            printed = (done.stdout + done.stderr).splitlines()
            if program == "python":
                assert printed == said
            else:
                assert {*map(_steady, said)} <= {*map(_steady, printed)}

    def _copy(self, source: str, target: str) -> None:
        """Copy a file into the folder, which lies at the top of a checkout."""
        assert source.startswith("../")
        shutil.copy(ROOT / source.removeprefix("../"), self.folder / target)

    def _python(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=self._environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip


def environment(database: str, port: int) -> dict[str, str]:
    """The variables of a shop's processes."""
    return {
        **os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1",
        "SHOP_DATABASE": database, "SHOP_PORT": str(port),
    }  # fmt: skip


@contextmanager
def serving(folder: Path, variables: dict[str, str]) -> Iterator[str]:
    """Run the `app.py` of a folder; yields its address."""
    address = f"http://127.0.0.1:{variables['SHOP_PORT']}/"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(address, timeout=5) as page:
                return b"Ticket shop" in page.read()
        except OSError:
            return False

    command = [sys.executable, "app.py"]
    with LocalProcess(
        "the shop", command, folder / "app.log", environment=variables, folder=folder
    ) as shop:
        shop.wait_until(answers, 30)
        yield address


@contextmanager
def looking_on(shop: str, database: str) -> Iterator[None]:
    """Follow what a shop shows live; in the end that is what its database has."""
    shown: dict[str, Any] = {}
    ended = threading.Event()
    with httpx.stream("GET", f"{shop}live", timeout=60) as stream:

        def look() -> None:
            with suppress(httpx.HTTPError):  # the test has failed meanwhile
                for line in stream.iter_lines():
                    if line.startswith("data: "):
                        shown.update(json.loads(line.removeprefix("data: ")))
                    if ended.is_set():
                        return

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        yield
        with streamydb.connect(database) as client:
            kept = {entry.key: entry.value for entry in client.scan("shop/")}

            def present() -> dict[str, Any]:
                return {key: value for key, value in dict(shown).items() if value is not None}

            wait_for(lambda: present() == kept, "the end on the page")
            ended.set()
            client.put("shop/closed", value=True)  # wakes the stream
            thread.join(60)
            assert not thread.is_alive()


def _steady(line: str) -> str:
    """A line without its figures, and how they are set."""
    return " ".join(re.sub(r"\d[\d,.]*", "0", line).split())
