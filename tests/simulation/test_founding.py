"""What a database was founded with, over any starts: what is recorded holds,
or a start is refused.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamydb.errors import ConfigurationError
from streamydb.kafka import foundation as topic
from streamydb.kafka.admin import TopicDescription
from streamydb.kafka.appender import TopicAppender
from streamydb.kafka.foundation import FACTS, FoundingFacts
from streamydb.kafka.names import TopicNames
from streamydb.pipeline.record import founded, read_record, recorded_config, require_same_log
from streamydb.records import begins
from streamydb.records.begins import Begins
from streamydb.records.control import Following, encode_message
from streamydb.settings import Settings
from tests.support.memory_kafka import Died, MemoryKafka
from tests.support.seeds import seeds

SEEDS = seeds(200, 50)
NAMES = TopicNames("sim")
CHOICES: dict[str, list[Any]] = {
    "partitions": [1, 2, 3], "id_window": [20, 300], "digest_interval": [1000, 2000],
    "grouping": ["planner", "single"],
}  # fmt: skip
BINDING = [name for name in FACTS if name != "grouping"]
REFUSED = [*BINDING]


class Database:
    """A log that grows, and pipelines that start with any settings."""

    def __init__(self, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(begins, "RULES", ("a rule",))
        self.dice = random.Random(f"founding {seed}")
        self.folder = folder / str(seed)
        self.kafka = MemoryKafka(self.dice)
        self.kafka.install(monkeypatch)
        self.kafka.create(NAMES.founding)
        self.kafka.create(NAMES.control)
        self.partitions = self.began = self.dice.choice(CHOICES["partitions"])
        self.records = 0
        self.truth: dict[str, Any] = {}
        self.told: list[dict[str, Any]] = []
        self.begins: Begins | None = None
        self.changes = {"the first": 2}
        self.changes_began: dict[str, int] = {}
        self._let_others_write(monkeypatch)
        self._noise()

    def _let_others_write(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another start may record its facts between a look at the topic and the writing."""
        append = TopicAppender.append

        def late(*given: Any, **beside: Any) -> None:
            if self.dice.random() < 0.2:
                facts = {name: self.dice.choice(CHOICES[name]) for name in FACTS}
                self._record({**facts, "partitions": min(facts["partitions"], self.partitions)})
            append(*given, **beside)

        monkeypatch.setattr(TopicAppender, "append", late)

    def _noise(self) -> None:
        """Records of another log, and such as nobody understands."""
        for value in (
            b"no json",
            b"",
            msgspec.json.encode(FoundingFacts(log="gone", partitions=9)),
        ):
            if self.dice.random() < 0.5:
                self.kafka.append(NAMES.founding, 0, value)

    def _record(self, facts: dict[str, Any]) -> None:
        self.kafka.append(NAMES.founding, 0, msgspec.json.encode(FoundingFacts(log="log", **facts)))

    def checkpoint(self) -> Path:
        """A new one or one of before."""
        return self.folder / str(self.dice.randrange(3))

    def settings(self) -> Settings:
        """Of a start: some are given."""
        names = [name for name in FACTS if self.dice.random() < 0.25]
        given = {name: self.dice.choice(CHOICES[name]) for name in names}
        for name in names:
            if name in self.truth and self.dice.random() < 0.6:
                given[name] = self.truth[name]
        return Settings.model_validate({"database": "sim", "bootstrap": "memory:9092", **given})

    def live(self) -> None:
        """The log gets records and partitions; a pipeline tells its terms."""
        self.records += self.dice.choice([0, 0, 5])
        if self.dice.random() < 0.3:
            self.partitions += 1
        ((name, count),) = self.changes.items()
        if self.dice.random() < 0.2:
            self.changes = {name: count + 1}
        elif self.dice.random() < 0.1:
            self.changes = {f"made anew after {name}": 3}
        if self.dice.random() < 0.2:
            config = {name: self.truth.get(name, CHOICES[name][0]) for name in BINDING}
            config["partitions"] = self.truth.get("partitions", self.began)
            terms = " ".join(f"{name}={value}" for name, value in config.items())
            told = Following(
                log="log", pipeline="p", epoch=1, resolved=0, lag_ms=0, ready=True, terms=terms
            )
            self.kafka.append(NAMES.control, 0, encode_message(told))
            self.told.append(config)

    def start(self) -> None:
        """A pipeline starts; what comes of it is what was recorded first."""
        given, checkpoint = self.settings(), self.checkpoint()
        ends = (self.records,) * self.partitions
        log = TopicDescription(NAMES.transactions, self.partitions, 1, {}, ends, ends)
        answered = (self.records,)
        results = TopicDescription(NAMES.results, 1, 1, {}, answered, answered)
        self.kafka.failing = self.dice.choice([0.0, 0.0, 0.2])
        doubtful = self._doubtful(given, checkpoint)
        try:
            found, places = founded(given, checkpoint, "log", log, results, self.changes)
        except Died:
            return
        except ConfigurationError as error:
            self._rightly_refused(given, str(error), doubtful=doubtful)
            return
        finally:
            self.kafka.failing = 0.0
            self.truth = self._holds()
        assert not doubtful, "nobody can know how many partitions there were"
        assert places == self._begun(), "rules begin where the first record says"
        self._note_changes()
        assert {name: getattr(found, name) for name in BINDING} == {
            name: self.truth[name] for name in BINDING
        }
        for name in (*REFUSED, "grouping"):
            if name in given.model_fields_set:
                assert getattr(found, name) == getattr(given, name), f"{name} was given"
        checkpoint.mkdir(parents=True, exist_ok=True)
        try:
            kept = recorded_config(checkpoint, found, found.partitions).grouping
        except ConfigurationError:
            assert "grouping" in given.model_fields_set, "nothing else is a checkpoint's own"
            before = read_record(checkpoint)
            assert before is not None
            assert before.grouping != given.grouping
        else:
            assert kept == found.grouping

    def _begun(self) -> Begins:
        """Where the rules begin, by reading the records one by one; it never changes."""
        records = [each.content or b"" for each in self.kafka.topics[NAMES.founding][0].records]
        told = [msgspec.json.decode(each) for each in records if each.startswith(b"{")]
        places = [t["begins"]["places"] for t in told if t["log"] == "log" and t.get("begins")]
        first = next(each for each in places if each)
        found = msgspec.convert({"places": first}, Begins, strict=False)
        assert not found.missing()
        assert self.begins in (None, found)
        self.begins = found
        return found

    def _note_changes(self) -> None:
        """What each topic of the changes began with, by reading the records, never changes."""
        known = topic.recall({"bootstrap.servers": "memory"}, "sim", "log").changes
        assert self.changes.keys() <= known.keys()
        assert known.items() >= self.changes_began.items()
        self.changes_began = known

    def _holds(self) -> dict[str, Any]:
        """What was recorded first, by reading the records one by one; nothing ever changes."""
        found: dict[str, Any] = {}
        for record in self.kafka.topics[NAMES.founding][0].records:
            try:
                told = msgspec.json.decode(record.content or b"")
            except msgspec.DecodeError:
                continue
            if told["log"] == "log":
                found = {**{n: told[n] for n in FACTS if told.get(n) is not None}, **found}
        assert {name: found[name] for name in self.truth} == self.truth
        return found

    def _doubtful(self, given: Settings, checkpoint: Path) -> bool:
        """Nothing says how many partitions a log of several began with."""
        known = "partitions" in self.truth or self.told or (checkpoint / "streamydb.json").exists()
        said = "partitions" in given.model_fields_set
        return not known and not said and self.partitions > 1 and self.records > 0

    def _rightly_refused(self, given: Settings, said: str, *, doubtful: bool) -> None:
        if "nothing says how many" in said:
            assert doubtful
            return
        known = {**(self.told[0] if self.told else {}), **self.truth, **self._holds()}
        names = [name for name in REFUSED if name in given.model_fields_set]
        wrong = [name for name in names if getattr(given, name) != known.get(name)]
        assert wrong or known.get("partitions", 0) > self.partitions, said
        assert any(f"--{name.replace('_', '-')}" in said for name in wrong) or "began" in said


@pytest.mark.parametrize("chunk", range(4))
def test_the_first_record_holds_whatever_starts_say(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(1 + chunk, SEEDS + 1, 4):
        with monkeypatch.context() as patched:
            database = Database(seed, tmp_path, patched)
            for _ in range(8):
                database.live()
                try:
                    database.start()
                except AssertionError as error:
                    raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize(
    ("database", "log", "told"),
    [("sim", "younger", "this is another log"), ("shop", "log", "records database='sim'")],
)
def test_a_checkpoint_of_another_database_or_log_founds_none(
    database: str, log: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, names = MemoryKafka(random.Random(1)), TopicNames(database)
    kafka.install(monkeypatch)
    for name in (names.founding, names.control):
        kafka.create(name)
    recorded_config(tmp_path, Settings(database="sim", id_window=20), 1)
    require_same_log(tmp_path, "log")
    given = Settings(database=database, bootstrap="memory:9092")
    log_topic, results = (
        TopicDescription(name, 1, 1, {}, (0,), (0,)) for name in ("log", "results")
    )
    with pytest.raises(ConfigurationError, match=told):
        founded(given, tmp_path, log, log_topic, results, {})
    assert kafka.topics[names.founding][0].records == []
    anew = given.model_copy(update={"id_window": 50})
    found, _ = founded(anew, tmp_path / "anew", log, log_topic, results, {})
    assert found.id_window == 50
