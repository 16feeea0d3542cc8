"""`python tools/versions.py [VERSION]`: the places that name the version of the release.

Without an argument it prints each place with its version, and fails if two differ. With one it
writes that version into all places. `make release` looks at the same list.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

__all__ = ["PLACES", "main", "versions", "write"]

ROOT = Path(__file__).resolve().parents[1]

VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
"""A version as a release may have it (a part of PEP 440)."""

PLACES: tuple[tuple[str, str, int], ...] = (
    ("streamydb/__init__.py", r'^__version__ = "(.+)"$', 1),
    ("layers/streamydb_layers/__init__.py", r'^__version__ = "(.+)"$', 1),
    ("layers/setup.cfg", r"^    streamydb == (\S+)$", 1),
    ("clients/typescript/package.json", r'^  "version": "(.+)",$', 1),
    ("clients/typescript/package-lock.json", r'^(?:  |      )"version": "(.+)",\n +"lockfile', 1),
    ("clients/typescript/package-lock.json", r'^      "version": "(.+)",\n      "license"', 1),
    ("docker/Dockerfile", r'^LABEL org\.opencontainers\.image\.version="(.+)"$', 1),
    ("deploy/kubernetes/base/kustomization.yaml", r'app\.kubernetes\.io/version: "(.+?)"', 1),
    ("docs/production.md", r"streamydb(?:_layers)?-([\w.]+?)-py3", 2),
    ("docs/production.md", r'newTag: "(.+?)"', 1),
)
"""Each place: file, pattern whose group is the version, and how often the file has it."""


def _spans(text: str, pattern: str) -> list[tuple[int, int]]:
    return [found.span(1) for found in re.finditer(pattern, text, re.MULTILINE)]


def versions(root: Path = ROOT) -> dict[str, str]:
    """Return the version of each place, by `file:line`.

    Raises:
        LookupError: a file has a place less or more often than `PLACES` says.
    """
    found: dict[str, str] = {}
    for file, pattern, count in PLACES:
        text = (root / file).read_text("utf-8")
        spans = _spans(text, pattern)
        if len(spans) != count:
            msg = f"{file} names its version {len(spans)} times by {pattern}, and not {count}"
            raise LookupError(msg)
        for start, end in spans:
            found[f"{file}:{text.count(chr(10), 0, start) + 1}"] = text[start:end]
    return found


def write(version: str, root: Path = ROOT) -> None:
    """Write a version into all places.

    Raises:
        ValueError: it is no version.
        LookupError: as `versions`.
    """
    if not VERSION.fullmatch(version):
        msg = f"{version!r} is no version: write three numbers, as in 1.2.3 or 1.2.3rc1"
        raise ValueError(msg)
    versions(root)
    for file, pattern, _ in PLACES:
        text = (root / file).read_text("utf-8")
        for start, end in reversed(_spans(text, pattern)):
            text = text[:start] + version + text[end:]
        (root / file).write_text(text, "utf-8")


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write the named version if there is one, and print all places; 1 if they differ."""
    try:
        if arguments:
            write(arguments[0], root)
        found = versions(root)
    except (LookupError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(f"{version:10} {place}" for place, version in found.items()))
    return int(len(set(found.values())) > 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
