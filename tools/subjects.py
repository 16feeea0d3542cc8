"""`python tools/subjects.py [BASE]`: the subjects of the commits since BASE keep the house rule.

A subject is shorter than 72 characters, and begins with the room that the commit changes, such as
"Facade: ...". Merges are free. `make lint` runs it over all commits since the rule began.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

__all__ = ["BASE", "LENGTH_MAX", "fault", "faults", "main"]

ROOT = Path(__file__).resolve().parents[1]

BASE = "97a4e8b1de085d1677d174eab2ee0ea4e6d14d94"
"""The last commit before the rule."""

LENGTH_MAX = 71
"""Characters of a subject."""

_ROOM = re.compile(r'(?:Revert ")?[A-Z][\w ./+-]*: \S')


def fault(subject: str) -> str | None:
    """Return the rule that a subject breaks, None if it keeps both."""
    if len(subject) > LENGTH_MAX:
        return f"{len(subject)} characters, {LENGTH_MAX} do"
    if not _ROOM.match(subject):
        return 'no room in front, as in "Facade: ..."'
    return None


def faults(base: str = BASE, root: Path = ROOT) -> list[str] | None:
    """Return a line for each subject since `base` that breaks a rule.

    None if there is nothing to look at: no git, no history, or one that does not reach `base`.
    """
    command = ["git", "-C", str(root), "log", "--no-merges", "--format=%h %s", f"{base}..HEAD"]
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
    found = faults(arguments[0] if arguments else BASE)
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
