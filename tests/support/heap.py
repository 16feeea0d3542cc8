"""What a pipeline's JVM keeps in its heap."""

from __future__ import annotations

import re
import subprocess
from typing import Final

from streamydb.local.java import java_home
from streamydb.testing.database import Database, wait_for

_FETCHED: Final = "org.apache.kafka.clients.consumer.ConsumerRecord"
_FEW: Final = 1_000
_GIVEN_UP_S: Final = 30.0


def living(db: Database, name: str) -> int:
    """How many objects of a class the JVM has, after a full collection."""
    java = next(process for process in db.processes() if process.name().startswith("java"))
    command = [f"{java_home()}/bin/jcmd", str(java.pid), "GC.class_histogram"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.search(rf"(\d+) +\d+ +{re.escape(name)}( |$)", told, re.MULTILINE)
    return int(found[1]) if found else 0


def keeps_no_records(db: Database) -> None:
    """Nothing is kept soon of what a pipeline without a load has fetched from Kafka.

    Raises:
        AssertionError: the JVM does not say what it has.
        TestingError: records stay in its heap.
    """
    assert living(db, "java.lang.String") > _FEW
    wait_for(lambda: living(db, _FETCHED) < _FEW, "no records kept", _GIVEN_UP_S)
