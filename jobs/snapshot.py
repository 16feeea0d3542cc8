"""`spark-submit ... jobs/snapshot.py --database bank --bootstrap kafka:9092 --to s3a://…`.

Everything is in the package `streamydb`, which must be importable (installed, or on PYTHONPATH).
"""

from __future__ import annotations

import sys

from streamydb.cli import app

if __name__ == "__main__":
    app(["snapshot", "--master=", *sys.argv[1:]])
