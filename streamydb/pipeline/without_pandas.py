"""Sparing our processes of pandas, which takes 22 MB and none of our functions needs.

Three places load it all the same, to know if it is there and new enough: Arrow when it converts its
first value, PySpark when it makes an Arrow function, and a module of PySpark's own tests, which the
pipeline's driver imports. Whoever imports pandas later, such as a stored procedure, finds it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

import pyarrow as pa

_PANDAS: Final = "pandas"


class _Absence(MetaPathFinder):
    """Python asks it first where a module is; of pandas it says that there is none."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Leave all other modules to those that Python asks next.
        Raises ModuleNotFoundError: it is pandas.
        """
        del path, target
        if fullname == _PANDAS:
            raise ModuleNotFoundError("pandas is left out here", name=_PANDAS)
        return None


@contextmanager
def _no_pandas() -> Iterator[None]:
    """Have nobody find pandas in the body; one that is loaded already stays."""
    absence = _Absence()
    sys.meta_path.insert(0, absence)
    try:
        yield
    finally:
        sys.meta_path.remove(absence)


def spare_pandas() -> None:
    """Have Arrow and PySpark look for pandas once, in vain; no other thread may import it now."""
    from pyspark.sql.pandas import functions as arrow_functions

    with _no_pandas():
        pa.scalar(0)
        from pyspark.testing import utils  # noqa: F401 - it looks when it is imported
    functions: Any = arrow_functions  # PySpark's types do not name what it has imported
    functions.require_minimum_pandas_version = _require_nothing


def _require_nothing() -> None:
    """Stand for PySpark's check, which it does for functions of Arrow's batches, too."""
