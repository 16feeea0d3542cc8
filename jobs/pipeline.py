"""The job for `spark-submit`: executes the transactions of a streamy-db database.

    spark-submit --master 'local[*,4]' --properties-file spark-defaults.conf \
        --driver-class-path "$(python -m streamydb.local.jars --class-path pipeline)" \
        "$(python -m streamydb.local.resources jobs/pipeline.py)" \
        --database bank --bootstrap 127.0.0.1:9092 --checkpoint /var/lib/bank

`--gear both` adds the real-time gear (docs/operations.md): a local master with two tasks or more.
"""

from __future__ import annotations

import sys

from streamydb.pipeline.__main__ import main

sys.exit(main(submitted=True))
