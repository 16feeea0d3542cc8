"""`python tools/subjects.py [SINCE]`: the subjects of the commits since a date keep the house rule.

A subject is shorter than 72 characters, and begins with the room that the commit changes, such as
"Facade: ...". Merges are free. `make lint` runs it over all commits since the rule began.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

__all__ = ["LENGTH_MAX", "SINCE", "fault", "faults", "main"]

ROOT = Path(__file__).resolve().parents[1]

SINCE = "2026-11-29T12:00:00+00:00"
"""The rule holds for commits that were made later."""

LENGTH_MAX = 71
"""Characters of a subject."""

_ROOM = re.compile(r'(?:Revert ")?[A-Z][\w ,./+-]*: \S')


def fault(subject: str) -> str | None:
    """Return the rule that a subject breaks, None if it keeps both."""
    if len(subject) > LENGTH_MAX:
        return f"{len(subject)} characters, {LENGTH_MAX} do"
    if not _ROOM.match(subject):
        return 'no room in front, as in "Facade: ..."'
    return None


def faults(since: str = SINCE, root: Path = ROOT) -> list[str] | None:
    """Return a line for each subject since a date that breaks a rule, None without a history."""
    command = ["git", "-C", str(root), "log", "--no-merges", "--format=%h %s", f"--since={since}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    if done.returncode:
        return None
    found = []
    for line in done.stdout.splitlines():
        commit, _, subject = line.partition(" ")
        if why := fault(subject):
            found.append(f"{commit} {subject}: {why}")
    return found


def main(arguments: list[str]) -> int:
    """Print the faults; 1 if there are some."""
    found = faults(arguments[0] if arguments else SINCE)
    if found is None:
        print("Subjects of commits: not checked, the history is not there.")
        return 0
    for line in found:
        print(line)
    if found:
        print("Mend the last one by git commit --amend, earlier ones by git rebase --interactive.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
