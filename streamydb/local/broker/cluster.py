"""A Kafka cluster of three embedded brokers on this machine: for tests and measurements.

Each broker is a process with a folder of its own, and votes on the controller. They share the
machine, so they show what three copies cost and what the loss of one broker does. They do not
protect a database from the loss of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from streamydb.local.broker import config
from streamydb.local.broker.embedded import EmbeddedBroker
from streamydb.local.broker.ports import free_port

CLUSTER_BROKERS: Final = 3  # brokers of a cluster: the fewest of which one may be lost
_IDENTITY: Final = b"three-brokers-of"


def member_properties(node: int, ports: Mapping[int, tuple[int, int]]) -> dict[str, str]:
    """Return the properties that a member of a cluster has beside those of a lone broker.
    ``node``: its number. ``ports``: by number of each member, the ports for clients and for the
    controllers.
    """
    port, controller_port = ports[node]
    copies, needed = str(len(ports)), str(len(ports) // 2 + 1)
    inner = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    return {
        "node.id": str(node),
        "controller.quorum.voters": ",".join(
            f"{number}@127.0.0.1:{control}" for number, (_, control) in ports.items()
        ),
        "listeners": f"BROKER://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        **{f"{topic}.replication.factor": copies for topic in inner},
        "transaction.state.log.min.isr": needed,
        "share.coordinator.state.topic.min.isr": needed,
    }


class EmbeddedCluster:
    """Three brokers under `<home>/broker-1` to `<home>/broker-3`; all end with the context.

    Attributes:
        home: the folder of all of them.
        brokers: the members, by number; any of them may be killed and started alone.
    """

    def __init__(self, home: Path, *, heap_mb: int = config.HEAP_MB_DEFAULT) -> None:
        """Choose the ports; nothing is started yet. ``heap_mb``: the largest heap of each JVM."""
        self.home = Path(home)
        ports: dict[int, tuple[int, int]] = {}
        taken: set[int] = set()
        for number in range(1, CLUSTER_BROKERS + 1):
            ports[number] = _another(taken), _another(taken)
        self.brokers = {
            number: EmbeddedBroker(
                self.home / f"broker-{number}", port=port, heap_mb=heap_mb, identity=_IDENTITY,
                properties=member_properties(number, ports),
            )
            for number, (port, _) in ports.items()
        }  # fmt: skip

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of the members that run."""
        return tuple(broker.record.pid for broker in self.brokers.values() if broker.alive)

    def start(self) -> Self:
        """Start all members that do not run: none answers before there is a majority.
        Raises BrokerError: one ended, or did not answer in time.
        """
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(EmbeddedBroker.start, self.brokers.values()))
        return self

    def stop(self) -> None:
        """End all members gracefully, and at the same time: the last one has no majority."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(EmbeddedBroker.stop, self.brokers.values()))

    def kill(self) -> None:
        """Kill all members at once (SIGKILL)."""
        for broker in self.brokers.values():
            broker.kill()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(self, *_error: object) -> None:
        self.stop()


def _another(taken: set[int]) -> int:
    port = free_port()
    while port in taken:
        port = free_port()
    taken.add(port)
    return port
