"""Pipelines that run elsewhere, as `status`, `doctor` and `up` recognise them."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.cli.common import Failure
from streamydb.cli.target import Target
from streamydb.kafka import presence
from streamydb.kafka.presence import PRESENT_S, PresentPipeline, heard
from streamydb.local.folder import DatabaseFolder, DatabaseRecord, PipelineStatus
from streamydb.records.control import (
    Audited,
    Beat,
    Following,
    LeaderClaim,
    Message,
    decode_message,
    encode_message,
)
from streamydb.records.gears import GearStatus
from streamydb.settings import Settings
from tests.support.control_topic import ControlTopic
from tests.support.memory_kafka import Record

doctor, status_command, up = (
    import_module(f"streamydb.cli.{name}") for name in ("doctor", "status", "up")
)

NOW_MS = 1_700_000_100_000
ELSEWHERE = PresentPipeline(
    name="", pipeline="abcdefgh1234", role="leading", epoch=3, resolved=7, ready=True, age_s=0.2
)


def beat(pipeline: str, epoch: int = 1, log: str = "log", resolved: int = 5) -> Beat:
    return Beat(log=log, pipeline=pipeline, epoch=epoch, resolved=resolved, read=9)


def follows(pipeline: str, *, ready: bool) -> Following:
    return Following(
        log="log", pipeline=pipeline, name="standby", epoch=1, resolved=3, lag_ms=0, ready=ready
    )


def at(age_s: float, message: Message) -> tuple[int, Message]:
    return NOW_MS - int(age_s * 1000), message


def test_who_was_heard_lately_is_known_the_leader_first() -> None:
    found = heard(
        [at(20, LeaderClaim(log="log", pipeline="a", epoch=1)), at(1, follows("b", ready=False)),
         at(0.2, beat("a")), at(0.1, Audited(log="log", pipeline="c"))],
        "log", NOW_MS,
    )  # fmt: skip
    assert [(one.pipeline, one.role, one.resolved, one.ready) for one in found] == [
        ("a", "leading", 5, True), ("b", "following", 3, False),
    ]  # fmt: skip
    assert str(found[0]) == "without a name (checkpoint a), leading, epoch 1, heard 0.2 s ago"
    assert str(found[1]) == "standby, following, not ready, epoch 1, heard 1.0 s ago"


def test_silence_and_other_logs_do_not_count() -> None:
    assert heard([at(PRESENT_S + 1, beat("a"))], "log", NOW_MS) == []
    assert heard([at(0, beat("a", log="of before"))], "log", NOW_MS) == []
    assert heard([at(-5, beat("a"))], "log", NOW_MS)[0].age_s == 0, "a clock that is ahead"


def test_the_highest_epoch_leads_even_if_it_is_silent_now() -> None:
    both = [at(0.1, beat("new", epoch=2)), at(0, beat("old", epoch=1))]
    assert [one.pipeline for one in heard(both, "log", NOW_MS)] == ["new"]
    silent = [at(PRESENT_S + 1, beat("new", epoch=2)), at(0, beat("old", epoch=1))]
    assert heard(silent, "log", NOW_MS) == []


def test_of_two_claims_of_an_epoch_the_first_leads() -> None:
    claims = [at(2, LeaderClaim(log="log", pipeline=who, epoch=2)) for who in ("b", "a")]
    assert [one.pipeline for one in heard(claims, "log", NOW_MS)] == ["b"]


class Control(ControlTopic):
    """A control topic, its brokers' clock, and that of this machine, which is wrong by some time.

    Args:
        wrong_s: by how much it is ahead; below zero: behind.
        past: what was said before.
        beats: the pipelines that beat every ten seconds, from some seconds after now on.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        wrong_s: float,
        past: list[tuple[int, Message]],
        beats: dict[str, float],
    ) -> None:
        self.listened_s = 0.0
        self._past, self._beats = past, beats
        self.stand_in(
            monkeypatch,
            lambda: int(NOW_MS + 1000 * (wrong_s + self.listened_s)) * 1_000_000,
            lambda: self.listened_s,
        )

    def last(self, _: int) -> list[Record]:
        return [record(*said) for said in self._past]

    def batch(self) -> list[Record]:
        before, self.listened_s = self.listened_s, self.listened_s + 0.1
        ends = (before, self.listened_s)
        due = [n for n, at in self._beats.items() if len({(end - at) // 10 for end in ends}) == 2]
        return [record(NOW_MS + int(1000 * self.listened_s), beat(name)) for name in due]

    def who(self, *own: str) -> list[str]:
        return [one.pipeline for one in presence.seen({}, "bank", own)]


def record(append_ms: int, message: Message) -> Record:
    return Record(0, 0, append_ms, None, encode_message(message))


@pytest.mark.parametrize("wrong_s", [-86_400, -300, -25, 0, 25, 300])
def test_a_wrong_clock_hides_no_pipeline_that_runs(
    monkeypatch: pytest.MonkeyPatch, wrong_s: int
) -> None:
    control = Control(monkeypatch, wrong_s, [at(1, beat("a"))], {"a": 9.0})
    assert control.who() == ["a"]
    assert presence.seen({}, "bank")[0].age_s < PRESENT_S


@pytest.mark.parametrize(("wrong_s", "ended_s"), [(-300, 100), (-86_400, 40_000), (300, 40)])
def test_a_wrong_clock_shows_no_pipeline_that_has_ended(
    monkeypatch: pytest.MonkeyPatch, wrong_s: int, ended_s: int
) -> None:
    past = [at(ended_s + 9, beat("new", epoch=2)), at(ended_s, beat("old", epoch=1))]
    control = Control(monkeypatch, wrong_s, past, {})
    assert control.who() == []
    assert 10 < control.listened_s < 13, "a beat of one that is alone would have come"


@pytest.mark.parametrize(("age_s", "own"), [(40, ["a"]), (7200, [])])
def test_nobody_listens_for_what_is_known(
    monkeypatch: pytest.MonkeyPatch, age_s: int, own: list[str]
) -> None:
    control = Control(monkeypatch, 0, [at(age_s, beat("a"))], {})
    assert control.who(*own) == []
    assert control.listened_s == 0


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[PresentPipeline]:
    """A database on a Kafka that answers, but for its copy for Connect, and who is heard in it."""
    said = [ELSEWHERE]
    monkeypatch.setattr("streamydb.kafka.reader.REQUEST_TIMEOUT_S", 0.1)
    monkeypatch.setattr(presence, "seen", lambda *_: said)
    monkeypatch.setattr(status_command, "_broker", lambda _: ("answers", 5))
    monkeypatch.setattr("streamydb.kafka.connection.listens", lambda _: True)
    monkeypatch.setattr(doctor, "commit_warning", lambda _: None)  # else: asks, for 30 s
    return said


def test_status_says_that_it_runs_elsewhere(
    elsewhere: list[PresentPipeline], tmp_path: Path
) -> None:
    where = ["--home", str(tmp_path), "--bootstrap", "kafka:9092"]
    done = CliRunner().invoke(app, ["status", *where])
    assert done.exit_code == 0, done.output
    assert "none here; the database is executed elsewhere" in done.stdout
    told = json.loads(CliRunner().invoke(app, ["status", "--json", *where]).stdout)
    assert told["running"]
    assert told["elsewhere"][0]["resolved"] == ELSEWHERE.resolved
    assert CliRunner().invoke(app, ["status", "--here", *where]).exit_code == 3
    elsewhere.clear()
    assert CliRunner().invoke(app, ["status", *where]).exit_code == 3


@pytest.mark.parametrize(
    ("role", "state", "codes"),
    [("following", "running", (3, 0)), ("leading", "running", (0, 0)), (None, "starting", (3, 3))],
)
def test_a_home_whose_only_pipeline_has_a_name(
    elsewhere: list[PresentPipeline],
    tmp_path: Path,
    role: str | None,
    state: str,
    codes: tuple[int, int],
) -> None:
    """It makes the health check of its home pass; the database runs only if it leads."""
    elsewhere.clear()
    path = DatabaseFolder(tmp_path, "streamydb").status_file_of("standby")
    path.parent.mkdir(parents=True)
    told = PipelineStatus(state=state, name="standby", role=role, pid=os.getpid())
    path.write_bytes(msgspec.json.encode(told))
    where = ["--home", str(tmp_path), "--bootstrap", "kafka:9092", "--database", "streamydb"]
    done = [CliRunner().invoke(app, ["status", *here, *where]) for here in ([], ["--here"])]
    assert tuple(one.exit_code for one in done) == codes, done[1].output


@pytest.mark.usefixtures("elsewhere")
def test_the_pipelines_of_this_home_are_not_elsewhere(tmp_path: Path) -> None:
    place = begun(tmp_path, ELSEWHERE.pipeline)
    assert status_command.pipelines_elsewhere(target(place)) == []


def test_doctor_says_that_it_runs_elsewhere(
    elsewhere: list[PresentPipeline], tmp_path: Path
) -> None:
    found = doctor._pipeline(target(DatabaseFolder(tmp_path, "bank")))
    assert (found.level, found.what) == ("ok", f"runs elsewhere: {ELSEWHERE}")
    elsewhere.clear()
    assert doctor._pipeline(target(DatabaseFolder(tmp_path, "bank"))).level == "warn"


def test_up_begins_no_second_checkpoint_unasked(
    elsewhere: list[PresentPipeline], tmp_path: Path
) -> None:
    with pytest.raises(Failure, match=r"executed elsewhere.*--second"):
        up.refuse_second(target(DatabaseFolder(tmp_path, "bank")))
    up.refuse_second(target(begun(tmp_path / "old", "another")))
    elsewhere.clear()
    up.refuse_second(target(DatabaseFolder(tmp_path, "bank")))


def test_rebuild_begins_no_second_pipeline_where_there_is_no_checkpoint(
    elsewhere: list[PresentPipeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = DatabaseFolder(tmp_path, "bank")
    place.write_record(DatabaseRecord(database="bank", shards=1, partitions=1, bootstrap="k:9"))
    monkeypatch.setattr("streamydb.kafka.connection.answer_of", lambda _: "kafka")
    monkeypatch.setattr("streamydb.cli.undone._running", lambda _: [])
    done = CliRunner().invoke(app, ["rebuild", "--home", str(tmp_path)])
    assert done.exit_code == 1
    assert f"executed elsewhere, by pipeline {elsewhere[0]}" in done.stderr
    assert "docs/operations.md" in done.stderr
    assert "--second" not in done.stderr
    assert place.pipeline() is None


def begun(home: Path, incarnation: str) -> DatabaseFolder:
    place = DatabaseFolder(home, "bank")
    place.checkpoint.mkdir(parents=True)
    (place.checkpoint / "streamydb.json").write_text(json.dumps({"incarnation": incarnation}))
    return place


def target(place: DatabaseFolder) -> Target:
    return Target(Settings(bootstrap="kafka:9092"), place)


def test_the_gear_that_leads_is_heard_on_any_machine() -> None:
    """The pipeline tells it with what it says anyway; a claim says nothing about it."""
    gear = GearStatus("real-time", 5, "calm", 77, behind=4, behind_records=5)
    follower = msgspec.structs.replace(follows("a", ready=True), gear=gear)
    said = decode_message(encode_message(follower))
    claim = LeaderClaim(log="log", pipeline="a", epoch=2)
    found = heard(
        [at(2, said), at(1, claim), at(0.5, beat("a+start", epoch=3)), at(0.4, beat("b"))],
        "log", NOW_MS,
    )  # fmt: skip
    assert {one.pipeline: one.gear for one in found} == {"a+start": None}
    found = heard([at(2, said), at(1, claim)], "log", NOW_MS)
    assert [one.gear for one in found] == [gear]
    assert "gear real-time" in str(found[0])
