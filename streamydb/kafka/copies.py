"""Choose how many copies of each topic a new database has, by the size of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from streamydb.kafka.admin import TopicDescription, TopicsError, cluster, describe_topics
from streamydb.kafka.clients import administrator
from streamydb.kafka.names import TopicNames

_COPIES: Final = 3
_INSYNC: Final = 2


class Copies(NamedTuple):
    """The copies of each topic, those that must have a record, and the brokers there are."""

    replication: int
    min_insync: int
    brokers: int

    @property
    def danger(self) -> str | None:
        """Say what one lost disk would do, where the cluster could do better; else None."""
        if self.brokers < _COPIES or (self.replication >= _COPIES and self.min_insync >= _INSYNC):
            return None
        return (
            f"this cluster has {self.brokers} brokers, and the database has replication "
            f"{self.replication} and min.insync.replicas {self.min_insync}: an acknowledged "
            "transaction may be on one disk only, and is gone with it. Create databases with "
            f"--replication {_COPIES} --min-insync {_INSYNC}; `streamydb doctor` names the "
            "commands for one that exists"
        )


def choose(
    brokers: int, replication: int | None, min_insync: int | None, log: TopicDescription | None
) -> Copies:
    """Return what was asked for; for the rest what the log has; for a new log the best there is.

    That is three copies, two of which must have a record, from three brokers on; one on fewer.

    Raises:
        TopicsError: more copies must have a record than there are.
    """
    wanted = replication
    if wanted is None:
        best = _COPIES if brokers >= _COPIES else 1
        wanted = best if log is None else log.replication
    needed = min_insync
    if needed is None and log is not None and wanted == log.replication:
        needed = int(log.settings.get("min.insync.replicas", 1))
    if needed is None:
        needed = _INSYNC if wanted >= _COPIES else 1
    if needed > wanted:
        msg = (
            f"min_insync {needed} is above replication {wanted} (on {brokers} brokers): no record "
            "could ever be acknowledged; ask for more copies, too"
        )
        raise TopicsError(msg)
    return Copies(wanted, needed, brokers)


def copies_for(
    client_config: Mapping[str, str], database: str, replication: int | None, min_insync: int | None
) -> Copies:
    """Choose the copies of a database on this cluster; None: it was not asked for.

    Raises:
        TopicsError: Kafka does not answer, or the two contradict each other.
    """
    admin = administrator(client_config)
    name = TopicNames(database).transactions
    log = describe_topics(admin, [name]).get(name)
    return choose(len(cluster(admin).brokers), replication, min_insync, log)
