"""`make release VERSION=1.2.3`: check, build the wheels, tag. It never pushes.

The order is: everything that can be refused, then `make lint`, then the wheels in `dist/`, then the
tag. So a release that fails leaves no tag. The wheels are built from what is committed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools.versions import VERSION, versions

__all__ = ["WORDS_MAX", "ReleaseError", "main", "notes", "objections", "release"]

ROOT = Path(__file__).resolve().parents[1]

WORDS_MAX = 700
"""Of the changes of one release: three minutes of reading."""

Run = Callable[[list[str], Path], str]
"""Runs a command in a folder and returns its output; raises `ReleaseError` if it fails."""


class ReleaseError(Exception):
    """The release is refused, or a step of it has failed."""


def run(command: list[str], folder: Path) -> str:
    """Run a command; what it writes to standard error is shown.

    Raises:
        ReleaseError: it failed.
    """
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        msg = f"`{' '.join(command)}` failed:\n{done.stdout[-2000:]}"
        raise ReleaseError(msg)
    return done.stdout


def notes(changelog: str, version: str) -> str | None:
    """Return what the changelog says of a release, None if it has no section of it."""
    sections = re.split(r"^## (.+)$", changelog, flags=re.MULTILINE)
    told = dict(zip(sections[1::2], sections[2::2], strict=True))
    return told.get(version)


def objections(version: str, root: Path, run: Run) -> list[str]:
    """Return the reasons why this version cannot be released as the tree stands."""
    if not VERSION.fullmatch(version):
        return [f"{version!r} is no version: make release VERSION=1.2.3"]
    found = []
    if changed := run(["git", "status", "--porcelain"], root):
        found.append(f"The tree is not clean; commit or remove:\n{changed.rstrip()}")
    if run(["git", "tag", "--list", f"v{version}"], root):
        found.append(f"The tag v{version} exists: a release is made once. Take the next version.")
    try:
        others = {place: its for place, its in versions(root).items() if its != version}
    except LookupError as error:
        return [*found, str(error)]
    if others:
        places = "\n".join(f"  {its:10} {place}" for place, its in others.items())
        found.append(
            f"Places that name another version (python tools/versions.py {version}):\n{places}"
        )
    changelog = (root / "CHANGELOG.md").read_text("utf-8")
    if not (told := (notes(changelog, version) or "").split()):
        found.append(f"CHANGELOG.md has no section `## {version}`, or nothing in it.")
    if len(told) > WORDS_MAX:
        found.append(f"CHANGELOG.md has {len(told)} words for {version}; {WORDS_MAX} are read.")
    if (notes(changelog, "Unreleased") or "").strip():
        found.append(f"CHANGELOG.md has unreleased changes: move them to `## {version}`.")
    if not (root / "tests" / "golden" / version).is_dir():
        found.append(f"tests/golden/{version} is missing: run python -m tools.golden, commit.")
    return found


def release(version: str, root: Path, run: Run) -> list[Path]:
    """Check, build and tag; return the wheels.

    Raises:
        ReleaseError: something is not as a release needs it, or a command failed.
    """
    if found := objections(version, root, run):
        raise ReleaseError("\n".join(found))
    run(["make", "lint"], root)
    wheels = root / "dist"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        run(["git", "worktree", "add", "--detach", str(source), "HEAD"], root)
        try:
            build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
            run([*build, "--wheel-dir", str(wheels), str(source), str(source / "layers")], root)
        finally:
            run(["git", "worktree", "remove", "--force", str(source)], root)
    made = [wheels / f"{name}-{version}-py3-none-any.whl" for name in _DISTRIBUTIONS]
    if missing := [wheel.name for wheel in made if not wheel.is_file()]:
        msg = f"pip has not made {', '.join(missing)} in {wheels}"
        raise ReleaseError(msg)
    run(["git", "tag", "--annotate", f"v{version}", "--message", f"streamy-db {version}"], root)
    return made


_DISTRIBUTIONS = ("streamydb", "streamydb_layers")


def main(arguments: list[str], root: Path = ROOT, run: Run = run) -> int:
    """Make the release of the named version; 1 and a message if it is refused."""
    try:
        wheels = release(arguments[0] if arguments else "", root, run)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    for wheel in wheels:
        print(wheel)
    print(f"Tagged v{arguments[0]}. To publish it: git push origin v{arguments[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
