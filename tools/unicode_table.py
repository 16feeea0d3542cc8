"""Make streamydb/procedures/unicode14.py, the code points that Unicode 14.0 does not assign.

    python3.11 tools/unicode_table.py

Python 3.11 has the tables of Unicode 14.0; another version has others, and is refused.
"""

from __future__ import annotations

import sys
import textwrap
import unicodedata
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "streamydb" / "procedures" / "unicode14.py"
VERSION = "14.0.0"
HEAD = '''"""The code points that Unicode 14.0 does not assign; made by tools/unicode_table.py."""

from __future__ import annotations

from typing import Final

UNASSIGNED: Final = (
'''
TAIL = ''')
"""Runs, ascending: first and last code point in hexadecimal, or the only one."""
'''


def runs() -> Iterator[tuple[int, int]]:
    """Runs of code points without a meaning."""
    start = None
    for point in range(sys.maxunicode + 2):
        known = point > sys.maxunicode or unicodedata.category(chr(point)) != "Cn"
        if not known and start is None:
            start = point
        if known and start is not None:
            yield start, point - 1
            start = None


def table() -> str:
    """The module's text."""
    named = " ".join(f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in runs())
    lines = textwrap.wrap(named, 90, break_on_hyphens=False)
    return HEAD + "".join(f'    "{line} "\n' for line in lines) + TAIL


if __name__ == "__main__":
    if unicodedata.unidata_version != VERSION:
        sys.exit(f"this Python has Unicode {unicodedata.unidata_version}; run it with Python 3.11")
    TARGET.write_text(table(), "utf-8")
