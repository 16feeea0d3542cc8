"""The record of a broker that outlives the process that started it: `<home>/broker.json`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from streamydb.local.file_lock import write_whole
from streamydb.local.launcher import Birth

_NAME = "broker.json"


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A started broker.

    Attributes:
        pid: its process id, which is its process group's id too.
        created: when that process was created, in seconds since 1970, as psutil tells it.
        bootstrap: the address for clients, "127.0.0.1:<port>".
        log: its log file.
        since_boot: when the process was created, as `Birth` has it.
    """

    pid: int
    created: float
    bootstrap: str
    log: str
    since_boot: str = ""

    @property
    def birth(self) -> Birth:
        """The beginning of the process."""
        return Birth(self.created, self.since_boot)


def write_record(home: Path, record: BrokerRecord) -> None:
    """Write `<home>/broker.json`."""
    write_whole(home / _NAME, json.dumps(asdict(record), indent=1).encode() + b"\n")


def read_record(home: Path) -> BrokerRecord | None:
    """Return the record of `home`, None if there is none or it cannot be read."""
    try:
        return BrokerRecord(**json.loads((home / _NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def remove_record(home: Path) -> None:
    """Remove the record of `home`, if there is one."""
    (home / _NAME).unlink(missing_ok=True)
