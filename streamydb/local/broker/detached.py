"""A broker that outlives the command that started it: `streamydb up` and `down`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streamydb.local.broker import config
from streamydb.local.broker.embedded import BrokerError, EmbeddedBroker
from streamydb.local.broker.ports import accepts
from streamydb.local.broker.record import BrokerRecord, read_record, remove_record, write_record
from streamydb.local.file_lock import file_lock
from streamydb.local.launcher import end, process_of, wait_until


def find_broker(home: Path) -> BrokerRecord | None:
    """Return the record of the broker that runs on `home`, None if none runs."""
    record = read_record(home)
    if record is None or process_of(record.pid, record.birth) is None:
        return None
    return record


def start_detached(
    home: Path,
    *,
    port: int | None = None,
    properties: Mapping[str, str] | None = None,
    heap_mb: int = config.HEAP_MB_DEFAULT,
) -> BrokerRecord:
    """Start a broker on `home` that outlives this process, or return the one that runs already.

    Its record is there before it answers: if this process is killed meanwhile, the next finds it,
    and starts no second one on the same data.

    Raises:
        BrokerError: it did not start, or one runs there on another port than `port`.
        OSError: its record cannot be written; then it does not run.
    """
    with file_lock(home / "broker.lock"):
        running = find_broker(home)
        if running is not None:
            if port and running.bootstrap != f"127.0.0.1:{port}":
                msg = (
                    f"The broker of {home} runs on {running.bootstrap}, not on port {port}. "
                    "Stop it first (`streamydb down`), or leave the port away."
                )
                raise BrokerError(msg)
            return _awaited(home, running)
        remove_record(home)
        broker = EmbeddedBroker(home, port=port, properties=properties, heap_mb=heap_mb)
        try:
            return broker.start(lambda record: write_record(home, record)).release()
        except BaseException:  # it does not run
            remove_record(home)
            raise


def _awaited(home: Path, running: BrokerRecord) -> BrokerRecord:
    """Return a broker that runs, once it listens: who has started it may have been killed since.

    Raises:
        BrokerError: it ended, or does not listen in time.
    """
    port = int(running.bootstrap.rpartition(":")[2])
    wait_until(lambda: accepts(port) or find_broker(home) is None, config.START_S_DEFAULT)
    if accepts(port):
        return running
    raise BrokerError(
        f"The broker of {home} (process {running.pid}) does not listen at {running.bootstrap}. Its "
        f"log is {running.log}; `streamydb down` stops it"
    )


def stop_detached(home: Path, *, timeout_s: float = 30.0) -> bool:
    """Stop the broker of `home` (SIGTERM, then SIGKILL); False if none was running."""
    with file_lock(home / "broker.lock"):
        record = read_record(home)
        stopped = record is not None and end("broker", record.pid, record.birth, timeout_s)
        remove_record(home)
        return stopped
