"""Finds the files that Spark, Ivy and `spark-submit` read.

`ivy.xml` and `log4j2.properties` lie beside this module. The jobs and `spark-defaults.conf` lie at
the top level of a checkout; a wheel carries them as data files, which the installation's own record
locates under any scheme.

    spark-submit ... "$(python -m streamydb.local.resources jobs/pipeline.py)"
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

SHIPPED = (
    "ivy.xml",
    "jobs/pipeline.py",
    "jobs/snapshot.py",
    "log4j2.properties",
    "spark-defaults.conf",
)
"""The files that `shipped_file` finds, by name."""


def shipped_file(name: str) -> Path:
    """Return the path of the file `name`.
    Raises FileNotFoundError: it is neither in the package, nor beside it, nor in the installation.
    """
    room = Path(__file__).resolve().parent
    checkout = room.parents[1]
    for folder in (room, checkout):
        if (folder / name).is_file():
            return folder / name
    try:
        files = metadata.files("streamydb") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.as_posix().endswith(f"share/streamydb/{name}"):
            return Path(str(file.locate())).resolve()
    msg = (
        f"{name} belongs to streamy-db but is neither in {checkout} nor in the installed package. "
        "Install the package again: `pip install --force-reinstall .` in a checkout, or its wheel."
    )
    raise FileNotFoundError(msg)


def spark_defaults() -> dict[str, str]:
    """Return the settings of `spark-defaults.conf`, for a session that no `spark-submit` starts.
    Raises FileNotFoundError: as `shipped_file`.
    """
    text = shipped_file("spark-defaults.conf").read_text(encoding="utf-8")
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the path of the named file, or of all of them; 0 = done."""
    names = (sys.argv[1:] if arguments is None else arguments) or SHIPPED
    unknown = [name for name in names if name not in SHIPPED]
    if unknown:
        sys.stderr.write(f"no file {unknown[0]!r}; there are {', '.join(SHIPPED)}\n")
        return 1
    try:
        sys.stdout.write("".join(f"{shipped_file(name)}\n" for name in names))
    except FileNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
