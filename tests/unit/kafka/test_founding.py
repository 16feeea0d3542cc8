"""What a database was founded with: which record holds, and what a start makes of it."""

from __future__ import annotations

import msgspec
import pytest

from streamydb.errors import ConfigurationError
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.admin import TopicDescription
from streamydb.kafka.foundation import FoundingFacts, merged
from streamydb.pipeline.record import of_terms, settled
from streamydb.settings import Settings


def log_with(partitions: int, *ends: int) -> TopicDescription:
    ends = ends or (7,) * partitions
    return TopicDescription("bank.transactions", partitions, 1, {}, (0,) * partitions, ends)


def encoded(**facts: object) -> bytes:
    return msgspec.json.encode(FoundingFacts(**{"log": "L", **facts}))  # type: ignore[arg-type]


def test_the_first_record_that_names_a_fact_holds() -> None:
    found = merged("L", [
        encoded(log="another", partitions=9),
        b"no json",
        encoded(partitions=1),
        encoded(partitions=3, id_window=20),
        encoded(id_window=30),
        b'{"log": "L", "a later field": 1}',
    ])  # fmt: skip
    assert found == FoundingFacts(log="L", partitions=1, id_window=20)
    with pytest.raises(ConfigurationError, match="newer release"):
        merged("L", [b'{"log": "L", "format": 2}'])


def test_every_topic_counts_of_which_a_record_says_that_it_lacks_changes() -> None:
    found = merged("L", [encoded(lacking=["a"]), encoded(partitions=1), encoded(lacking=["b"])])
    assert found == FoundingFacts(log="L", partitions=1, lacking=frozenset({"a", "b"}))


@pytest.mark.fault(
    40, "a log that has grown, a start without settings", "the recorded number, else refused"
)
def test_a_grown_log_keeps_the_partitions_it_was_founded_with() -> None:
    known = FoundingFacts(log="L", partitions=1, id_window=20, digest_interval=1000)
    assert settled(Settings(database="bank"), known, log_with(3)) == msgspec.structs.replace(
        known, grouping="planner"
    )
    with pytest.raises(ConfigurationError, match=r"nothing says how many .* --partitions: 3 if"):
        settled(Settings(database="bank"), FoundingFacts(log="L"), log_with(3))
    asked = Settings(database="bank", partitions=2)
    assert settled(asked, FoundingFacts(log="L"), log_with(3)).partitions == 2
    with pytest.raises(ConfigurationError, match="cannot have begun with 4"):
        settled(Settings(database="bank", partitions=4), FoundingFacts(log="L"), log_with(3))


def test_where_the_log_leaves_no_doubt_nothing_has_to_be_said() -> None:
    settings = Settings(database="bank", id_window=50)
    assert settled(settings, FoundingFacts(log="L"), log_with(1)).partitions == 1
    assert settled(settings, FoundingFacts(log="L"), log_with(3, 0, 0, 0)).partitions == 3
    assert settled(settings, FoundingFacts(log="L"), log_with(1)).id_window == 50


@pytest.mark.parametrize(
    ("name", "value"), [("partitions", 3), ("id_window", 30), ("digest_interval", 2000)]
)
def test_what_contradicts_a_fact_is_refused(name: str, value: int) -> None:
    known = FoundingFacts(log="L", partitions=1, id_window=20, digest_interval=1000)
    with pytest.raises(ConfigurationError, match=f"founded with {name}=.*leave --{name[:2]}"):
        settled(Settings.model_validate({"database": "bank", name: value}), known, log_with(3))


def test_another_grouping_is_no_other_database() -> None:
    known = FoundingFacts(log="L", partitions=1, grouping="planner")
    settled(Settings(database="bank", grouping="single"), known, log_with(1))


def test_a_log_of_fewer_partitions_is_another_one() -> None:
    with pytest.raises(ConfigurationError, match="another cluster"):
        settled(Settings(database="bank"), FoundingFacts(log="L", partitions=3), log_with(1))


def test_what_pipelines_told_of_their_settings_is_understood() -> None:
    config = ShardConfig("bank", "i", 2, 3, 100, digest_interval=500)
    assert of_terms("L", config.terms) == FoundingFacts(
        log="L", partitions=3, id_window=100, digest_interval=500
    )
    assert of_terms("L", "") == FoundingFacts(log="L")
