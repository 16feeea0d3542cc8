"""Write the tables of the TypeScript client: problem types, reason codes, limits.

    python -m tools.typescript

`clients/typescript/src/tables.ts` says what `streamydb/records/problems.py`, `streamydb/errors.py`
and `streamydb/limits.py` say. `make test` fails when it says anything else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from streamydb import errors, limits
from streamydb.records.names import UNIQUE_PREFIX
from streamydb.records.problems import PROBLEMS, problem_of_rejection

__all__ = ["FILE", "tables"]

FILE: Final = Path(__file__).resolve().parents[1] / "clients/typescript/src/tables.ts"
_HEAD: Final = "// Written by `python -m tools.typescript`: change what it reads.\n"


def tables() -> str:
    """Return the content of the file."""
    problems = {
        p.slug: {"status": p.status, "retriable": p.retriable, "uncertain": p.uncertain}
        for p in PROBLEMS.values()
    }
    rejected = {
        code: {"problem": problem_of_rejection(code).slug, "when": text}
        for code, text in errors.REJECTED_CODES.items()
    }
    named = ("ID_BYTES_MAX", "KEY_BYTES_MAX", "LOCK_ATTEMPTS_MAX", "DEADLINE_AHEAD_MS_MAX")
    parts = [
        _table("Problem types: how a request fails, and whether it may succeed later.",
               "PROBLEMS", problems),
        _table("Reason codes of aborted transactions.", "ABORTED", errors.ABORTED_CODES),
        _table("Reason codes of rejected records.", "REJECTED", rejected),
        _table("Codes of copies that came at the wrong time: another may have been executed.",
               "UNTIMELY", sorted(errors.UNTIMELY)),
        *(f"export const {name} = {getattr(limits, name)};\n" for name in named),
        f"export const UNIQUE_PREFIX = {json.dumps(UNIQUE_PREFIX)};\n",
    ]  # fmt: skip
    return _HEAD + "\n".join(parts)


def _table(comment: str, name: str, content: Any) -> str:
    return f"/** {comment} */\nexport const {name} = {json.dumps(content, indent=2)} as const;\n"


if __name__ == "__main__":
    FILE.write_text(tables(), encoding="utf-8")
