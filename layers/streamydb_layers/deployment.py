"""Deploy the procedures of a layer into a database.

The pipeline finds code by hash in its folder of modules, so the file goes there before the record
goes into the log: a record whose file is missing stops the query. On the machine of the pipeline,
``streamydb procedures deploy $(python -m streamydb_layers)`` does the same for all layers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from streamydb.procedures.folder import load_file, publish
from streamydb_layers.steps import Flow, commit_deploy, read

FOLDER: Final = Path(__file__).parent / "procedures"
"""Where the modules lie that come with the layers."""


def module_files() -> list[Path]:
    """The modules of all layers, as files."""
    return sorted(FOLDER.glob("streamydb_*.py"))


def deploying(module: str, folder: str | Path | None) -> Flow[bool]:
    """Deploy a module unless this version is current; tell whether that was needed.

    Args:
        module: its name.
        folder: that of the pipeline; None if the file is there already.

    Raises:
        ConfigurationError: the folder cannot be written.
    """
    file = FOLDER / f"{module}.py"
    found = load_file(file)[0] if folder is None else publish(file, Path(folder))
    current: Any = (yield from read([found.key]))[found.key]
    if current is not None and current["hash"] == found.hash:
        return False
    yield from commit_deploy(found.record)
    return True
