"""Changes that were made anew have none of what was written before: only a rebuild goes on there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from streamydb.backup.start import Beginning
from streamydb.errors import ConfigurationError
from streamydb.kafka import TopicNames, check, create
from streamydb.kafka.admin import cluster, count_partitions
from streamydb.kafka.clients import MESSAGES, administrator, appender
from streamydb.pipeline import main
from streamydb.pipeline.config import PipelineConfig
from streamydb.settings import Settings
from streamydb.testing.database import wait_for

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def config(bootstrap: str, database: str, tmp_path: Path) -> PipelineConfig:
    settings = Settings(database=database, bootstrap=bootstrap)
    create(settings.client_config(), database)
    return PipelineConfig(settings, tmp_path / "checkpoint", None, tmp_path)


def made_anew(config: PipelineConfig) -> None:
    """Do what the message about changes that were given partitions says."""
    client, name = config.settings.client_config(), config.settings.database
    topic = TopicNames(name).changes
    admin = administrator(client)
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(30)
    wait_for(lambda: count_partitions(cluster(admin).topics[topic]) == 6, "more partitions")
    with pytest.raises(ConfigurationError, match=r"STREAMYDB_CHANGES_PARTITIONS=4.*rebuild"):
        main._find(config)
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in cluster(admin).topics, "the topic to be gone")
    create(client, name, changes_partitions=4)
    assert check(client, name) == []


def test_a_checkpoint_whose_changes_were_made_anew_is_refused_and_a_new_one_begins(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    main._find(config)
    main._find(config)
    made_anew(config)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"made anew.*streamydb rebuild"):
            main._find(config)
    rebuilt = replace(config, checkpoint=tmp_path / "rebuilt")
    main._find(rebuilt)
    main._find(rebuilt)
    state = Beginning(tmp_path, 7, (0,))

    def begin(*_: Any) -> Beginning:
        return state

    monkeypatch.setattr(main, "begin", begin)
    from_state = replace(config, checkpoint=tmp_path / "from-state")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"up to seq 7.*log's beginning"):
            main._find(from_state)
    client, topic = config.settings.client_config(), TopicNames(config.settings.database).changes
    producer = appender(client, MESSAGES, topic)
    producer.produce(topic, b"{}", partition=2)
    assert producer.flush(30) == 0
    found = main._find(from_state)
    assert found.start == state
