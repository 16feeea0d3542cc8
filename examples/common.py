"""What the examples share: which database, how a module is deployed, how to begin anew."""

from __future__ import annotations

import sys
from pathlib import Path

import streamydb
from streamydb.client import Client
from streamydb.local.folder import DatabaseFolder
from streamydb.local.module_folder import publish

MODULES = Path(__file__).with_name("modules")


def connect(modules: Path | None = None) -> Client:
    """Connect to the database of the command line: `python NAME.py [URL]`.

    Args:
        modules: where the code of procedures is, to find the keys of calls.
    """
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
    return streamydb.connect(url, procedures=modules)


def folder() -> Path:
    """Return where the pipeline of this machine looks for modules.

    The pipeline stops at a record that names a module which it does not have, so this ends the
    program where there is no pipeline.
    """
    settings = streamydb.Settings()
    place = DatabaseFolder(settings.home, settings.database)
    if settings.procedures is None and place.record() is None:
        sys.exit(
            f"There is no database {settings.database} in {settings.home}. Run this on the "
            "pipeline's machine, or name its folder of modules with STREAMYDB_PROCEDURES."
        )
    return settings.procedures or place.procedures


def deploy(db: Client, file: Path) -> str:
    """Do what `streamydb procedures deploy FILE` does: the file,
    then the record; return its hash.
    """
    module = publish(file, folder())
    db.transaction(deploy=module.record)
    return module.hash


def clear(db: Client, prefix: str) -> None:
    """Delete what an earlier run left behind."""
    emptying = db.atomic()
    for entry in db.scan(prefix):
        emptying.delete(entry.key)
    emptying.commit()
