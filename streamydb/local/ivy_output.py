"""Reads the output of Ivy: its progress, and the lines that say why it failed."""

from __future__ import annotations

import re
from collections.abc import Iterable

_FOUND = re.compile(r"^\s*found (\S+) in ")
_DOWNLOADING = re.compile(r"^downloading \S*/(\S+?\.jar)")
_DOWNLOADED = re.compile(r"^\s*\[SUCCESSFUL \] \S+!(\S+?)(?:\(\w+\))? ")
_PROBLEM = re.compile(
    r"unresolved dependenc|not found|download failed|FAILED|UNRESOLVED"
    r"|Server access error|Host .* not found|timed out|refused|Exception",
    re.IGNORECASE,
)
_CAUSE = re.compile(r"Server access error|Exception|timed out")
_PROBLEM_LINES_MAX = 12


def parse_line(line: str) -> tuple[str, str] | None:
    """Read a line of Ivy's output: (stage or "downloaded", name), or None without progress."""
    if match := _FOUND.match(line):
        return "resolving", match[1]
    if match := _DOWNLOADING.match(line):
        return "downloading", match[1]
    if match := _DOWNLOADED.match(line):
        return "downloaded", match[1]
    return None


def failure(conf: str, tail: Iterable[str], code: int) -> str:
    """Say why Ivy failed, from the end of its output, and what to do about it."""
    lines = list(dict.fromkeys(line.strip() for line in tail if line.strip()))
    problems = [line for line in lines if _PROBLEM.search(line)] or lines
    problems.sort(key=lambda line: _CAUSE.search(line) is None)
    shown = "\n".join(f"  {line}" for line in problems[:_PROBLEM_LINES_MAX])
    return (
        f"Could not fetch the jars of {conf!r} (Ivy ended with exit code {code}). It said:\n"
        f"{shown}\n"
        "Is the Maven registry within reach? Behind a proxy set HTTPS_PROXY. For a mirror write\n"
        "an ivysettings.xml that names it and set STREAMYDB_IVY_SETTINGS to its path. A cache\n"
        "that was filled on another machine works as well: copy it and set STREAMYDB_CACHE to it."
    )
