"""Start the process of a query with no more than it needs: `python -m streamydb.sql.process`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    from streamydb.sql.child import WithoutPandas

    sys.meta_path.insert(0, WithoutPandas())

    from streamydb.sql.worker import main

    # Nothing is worth tidying up, and DuckDB's module complains when the interpreter does.
    os._exit(main())
