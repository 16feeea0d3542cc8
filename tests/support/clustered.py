"""A database on three brokers, any of which may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from confluent_kafka.admin import AdminClient

from streamydb.kafka import TopicNames, create
from streamydb.local.broker import EmbeddedCluster
from streamydb.settings import Settings
from streamydb.testing.database import Database, wait_for


class Clustered(Database):
    """A database on three brokers with every topic on all of them; two have to be there."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        super().__init__(folder)
        self.cluster = EmbeddedCluster(folder, heap_mb=384)
        self.brokers = self.cluster.brokers
        self.broker = self.brokers[1]
        self.options = ["--bootstrap", self.cluster.bootstrap, *options]

    def __enter__(self) -> Self:
        self.start_brokers()
        create(self.settings.client_config(), self.name, replication=3, min_insync=2)
        self.start_pipeline()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_pipeline()
        self.cluster.kill()

    @property
    def settings(self) -> Settings:
        return Settings(
            database=self.name, bootstrap=self.cluster.bootstrap, home=self.folder / "home"
        )

    def start_brokers(self) -> None:
        """Start all that do not run: none answers before there is a majority."""
        self.cluster.start()

    def leader(self) -> int:
        """Who leads the log; less than one: nobody."""
        topic = TopicNames(self.name).transactions
        admin = AdminClient({**self.settings.client_config()})
        return int(admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader)


def another_leads(db: Clustered, leader: int) -> None:
    """Wait until somebody leads who has not led before."""
    wait_for(lambda: db.leader() not in (leader, -1), "a new leader")


def all_in_sync(db: Clustered) -> None:
    """Wait until every topic of the database has three copies again."""
    admin = AdminClient({**db.settings.client_config()})

    def whole() -> bool:
        topics = admin.list_topics(timeout=30).topics.values()
        ours = [topic for topic in topics if topic.topic.startswith(f"{db.name}.")]
        return all(len(p.isrs) == 3 for topic in ours for p in topic.partitions.values())

    wait_for(whole, "three copies of everything")
