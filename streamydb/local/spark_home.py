"""A home for Spark whose Python workers load the installed PySpark.

Spark puts `python/lib/pyspark.zip` of its home in front of what its Python workers import. That
archive holds sources only, which each process compiles anew: 0.6 s of every worker's start. So the
home here is a folder of links to the package's `bin` and `jars`, without that archive.
"""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from streamydb.local.jars import cache_folder

_LINKED: Final = ("bin", "jars")


def spark_home(package: Path, cache: Path | None = None) -> Path:
    """Return the folder, made if it is missing; the package itself if it cannot be made.

    Args:
        package: the folder of the installed PySpark.
        cache: where to make it; by default the user's cache.
    """
    digest = hashlib.sha256(str(package).encode()).hexdigest()[:16]
    home = (cache or cache_folder()) / f"spark-home-{digest}"
    try:
        _make(home, package)
    except OSError:
        return package
    return home


def _make(home: Path, package: Path) -> None:
    """Make the folder whole, whoever else makes it at the same time."""
    if home.is_dir():
        return
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".spark-home-", dir=home.parent) as scratch:
        made = Path(scratch) / "home"
        made.mkdir()
        for name in _LINKED:
            (made / name).symlink_to(package / name, target_is_directory=True)
        with suppress(OSError):  # another process was faster
            made.rename(home)
    if not home.is_dir():
        raise FileNotFoundError(home)
