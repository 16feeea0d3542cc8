"""The embedded default: a real Kafka broker on this machine, one node, run from jars.

It is for a laptop, for tests and for a first look. A database that matters belongs on a Kafka
cluster of its own; everything else in streamy-db takes any bootstrap address.

In: a home folder. Out: a bootstrap address. Topics survive stops, kills and restarts; what is
promised on a crash of the machine is what one Kafka replica promises.
"""

from __future__ import annotations

from streamydb.local.broker.cluster import CLUSTER_BROKERS, EmbeddedCluster
from streamydb.local.broker.embedded import (
    BrokerError,
    BrokerRecord,
    EmbeddedBroker,
    answers,
    find_broker,
    start_detached,
    stop_detached,
)
from streamydb.local.broker.ports import free_port

__all__ = [
    "CLUSTER_BROKERS",
    "BrokerError",
    "BrokerRecord",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "answers",
    "find_broker",
    "free_port",
    "start_detached",
    "stop_detached",
]
