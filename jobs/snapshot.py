"""`spark-submit ... jobs/snapshot.py --database bank --bootstrap kafka:9092 --to s3a://…`.

Everything is in the package `streamydb`, which must be importable (installed, or on PYTHONPATH).
"""

from __future__ import annotations

import sys

from streamydb.snapshots.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], submitted=True))
