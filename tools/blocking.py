"""Write the client for threads, `streamydb/client/blocking`, from the one for coroutines.

    python -m tools.blocking

Every file of `streamydb/client/awaiting` has one of the same name there: without `async` and
`await`, with the names and the few sentences that a table below maps. `make test` fails when they
say anything else.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["blocking", "same", "sources", "written"]

ROOT: Final = Path(__file__).resolve().parents[1] / "streamydb" / "client"
NOTE: Final = "# Written by tools/blocking.py from `awaiting`: change that one.\n"

_SENTENCES: Final = {
    "for one event loop; `streamydb.connect_async`": (
        "for any number of threads; `streamydb.connect`"
    ),
    "function: a coroutine function; reads": "function: reads",
    "For coroutines of one event loop.": "For any number of threads.",
    "`tools/blocking.py` writes the package `blocking`, the same for threads, from these files.": (
        "`tools/blocking.py` wrote it from the package `awaiting`."
    ),
    "coroutines": "threads",
    "in another task": "in another thread",
}
"""What is said of coroutines only, and of threads."""

_PATTERNS: Final = (
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\basync (def|with|for) ", r"\1 "),
    (r"`async with`", "`with`"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bAwaitable, ", ""),
    (r"\banext\(", "next("),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\ba(iter_bytes|read|close)\(", r"\1("),
    (r"\baclose\b", "close"),
    (r"\bpush_async_callback\b", "callback"),
    (r"\basyncio\b", "time"),
    (r"\bclient\.awaiting\b", "client.blocking"),
)
"""What is written otherwise: (pattern, replacement)."""


def blocking(source: str) -> str:
    """One file for threads, from one for coroutines."""
    for one, other in _SENTENCES.items():
        source = source.replace(one, other)
    for pattern, replacement in _PATTERNS:
        source = re.sub(pattern, replacement, source)
    return NOTE + source


def sources() -> list[Path]:
    """The files for coroutines."""
    return sorted((ROOT / "awaiting").glob("*.py"))


def written(source: Path) -> Path:
    """Where what is made of one lies."""
    return ROOT / "blocking" / source.name


def same(one: str, other: str) -> bool:
    """Whether two files say the same, whatever their lines and the order of their imports."""
    return _essence(one) == _essence(other)


def _essence(text: str) -> list[str]:
    body = ast.parse(text).body
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in imports:
        node.names.sort(key=lambda alias: alias.name)
    others = [ast.unparse(node) for node in body if node not in imports]
    return [*sorted(map(ast.unparse, imports)), *others]


def _tidied(text: str, path: Path) -> str:
    """Imports in order, lines as long as they may be; ruff is there for developers only."""
    for command in (["check", "--fix", "--quiet", "--select", "I"], ["format"]):
        given = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"]
        done = subprocess.run(given, input=text, capture_output=True, text=True, check=True)
        text = done.stdout
    return text


def main() -> int:
    """Write them all."""
    for source in sources():
        path = written(source)
        path.write_text(_tidied(blocking(source.read_text("utf-8")), path), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
