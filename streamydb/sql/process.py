"""Start the process of a query with no more than it needs: `python -m streamydb.sql.process`."""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder

__all__ = ["WithoutPandas"]


class WithoutPandas(MetaPathFinder):
    """Hides pandas: pyarrow and DuckDB load it where it is, which takes longer than all the rest.
    """

    def find_spec(self, name: str, *_: object) -> None:
        """Find nothing; pandas is not even looked for.

        Raises:
            ModuleNotFoundError: it is pandas.
        """
        if name == "pandas":
            raise ModuleNotFoundError(name)


if __name__ == "__main__":
    sys.meta_path.insert(0, WithoutPandas())

    from streamydb.sql.worker import main

    # Nothing is worth tidying up, and DuckDB's module complains when the interpreter does.
    os._exit(main())
