"""Finds the files that the project keeps at its top level (`ivy.xml`, `spark-defaults.conf`).

They exist once. In a checkout (and in an editable installation) they lie beside the package; a
wheel carries them as data files, which the installation's own record locates under any scheme.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

__all__ = ["shipped_file", "spark_defaults"]


def shipped_file(name: str) -> Path:
    """Return the path of the top-level file `name`.

    Raises:
        FileNotFoundError: it is neither beside the package nor in the installation.
    """
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / name).is_file():
        return checkout / name
    try:
        files = metadata.files("streamydb") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == name and "share" in file.parts:
            return Path(str(file.locate())).resolve()
    msg = (
        f"{name} belongs to streamy-db but is neither in {checkout} nor in the installed package. "
        "Install the package again (`pip install --force-reinstall streamydb`)."
    )
    raise FileNotFoundError(msg)


def spark_defaults() -> dict[str, str]:
    """Return the settings of `spark-defaults.conf`, for a session that no `spark-submit` starts.

    Raises:
        FileNotFoundError: as `shipped_file`.
    """
    text = shipped_file("spark-defaults.conf").read_text(encoding="utf-8")
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}
