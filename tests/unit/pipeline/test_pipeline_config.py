"""What a checkpoint remembers, and what a pipeline refuses to go on with."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from streamydb.errors import ConfigurationError, InvariantViolation
from streamydb.frames.encoding import pack
from streamydb.frames.protocol import FORMAT
from streamydb.frames.shards import ShardConfig
from streamydb.limits import PLAN_RECORDS_MAX
from streamydb.local.java import GIVES_BACK
from streamydb.parser.core import parse_feedback
from streamydb.pipeline import __main__ as command
from streamydb.pipeline.__main__ import main, parse
from streamydb.pipeline.config import SMALL_JAVA, SMALL_MAX_OFFSETS, SMALL_SPARK
from streamydb.pipeline.query import sink_options
from streamydb.pipeline.record import recorded_config, require_same_log
from streamydb.pipeline.session import DRIVER_OPTIONS, SparkLaunch, _what
from streamydb.settings import Settings


def test_a_checkpoint_belongs_to_one_log(tmp_path: Path) -> None:
    require_same_log(tmp_path, "the-first")
    require_same_log(tmp_path, "the-first")
    with pytest.raises(ConfigurationError, match="this is another log"):
        require_same_log(tmp_path, "the-second")


@pytest.mark.fault(19, "the record of the checkpoint gone, and truncated", "refused, with the file")
@pytest.mark.parametrize(
    ("left", "said"), [(None, "is missing though"), (0.5, "cannot be read"), (0, "cannot be read")]
)
def test_a_checkpoint_whose_record_is_damaged_is_refused(
    tmp_path: Path, left: float | None, said: str
) -> None:
    before = recorded_config(tmp_path, Settings(), 1)
    (tmp_path / "query").mkdir()
    record = tmp_path / "streamydb.json"
    whole = record.read_bytes()
    if left is None:
        record.unlink()
    else:
        record.write_bytes(whole[: int(left * len(whole))])
    with pytest.raises(ConfigurationError, match=f"{record} {said}") as refused:
        recorded_config(tmp_path, Settings(), 1)
    assert "`streamydb rebuild`" in str(refused.value)
    record.write_bytes(whole)
    assert recorded_config(tmp_path, Settings(), 1) == before


@pytest.mark.fault(
    21, "feedback of a newer release: of another pipeline, and of this one", "passed by; refused"
)
def test_a_newer_format_stops_only_the_pipeline_that_it_is_for() -> None:
    config = ShardConfig("bank", "mine", 1, 1, 100)
    header = {"kind": "feedback", "shard": 0, "format": FORMAT + 1}
    assert list(parse_feedback([pack({}, **header, incarnation="another")], config)) == []
    with pytest.raises(InvariantViolation, match=f"a block has format {FORMAT + 1}"):
        list(parse_feedback([pack({}, **header, incarnation="mine")], config))


def test_a_checkpoint_is_a_folder_or_lies_in_a_store_and_has_a_copy_here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = ["--database", "bank", "--local", str(tmp_path), "--checkpoint"]
    folder = parse([*given, "here"])
    assert (folder.store, folder.checkpoint) == (None, Path("here").resolve())
    assert folder.location == str(folder.checkpoint)
    first, second = parse([*given, "s3a://bucket/bank/"]), parse([*given, "s3a://bucket/other"])
    assert first.location == "s3a://bucket/bank"
    assert first.checkpoint.parent == second.checkpoint.parent == tmp_path
    assert first.checkpoint != second.checkpoint
    with pytest.raises(SystemExit):
        parse([*given, "file:///here"])
    assert "name a folder by its path" in capsys.readouterr().err


def test_a_small_pipeline_has_small_sizes_and_what_is_given_wins() -> None:
    given = ["--checkpoint", "here", "--small"]
    small, usual = parse(given), parse(given[:-1])
    assert (small.small, usual.small, usual.spark_conf) == (True, False, {})
    assert small.spark_conf == SMALL_SPARK
    assert small.settings.max_offsets_per_trigger == SMALL_MAX_OFFSETS
    buffers = [int(sink_options(each)["kafka.buffer.memory"]) for each in (small, usual)]
    assert buffers == [4 << 20, 16 << 20]
    heap = "spark.driver.memory"
    own = parse([*given, "--max-offsets", "7", "--conf", f"{heap}=1g"])
    assert own.settings.max_offsets_per_trigger == 7
    assert own.spark_conf == {**SMALL_SPARK, heap: "1g"}
    (_, _, settings), (_, _, others) = _what(small), _what(usual)
    assert DRIVER_OPTIONS not in others
    options = settings[DRIVER_OPTIONS]
    assert options.startswith(SMALL_JAVA)
    assert "-Dlog4j2.configurationFile=" in options
    assert " ".join(GIVES_BACK) in options
    assert sum(f"-XX:+Use{name}GC" in options for name in ("G1", "Parallel", "Serial")) == 1


def test_a_setting_that_contradicts_the_checkpoint_is_refused_with_what_can_be_done(
    tmp_path: Path,
) -> None:
    recorded_config(tmp_path, Settings(), 1)
    recorded_config(tmp_path, Settings(), 1)
    with pytest.raises(ConfigurationError, match=r"start with shards=1, or .* `streamydb resize`"):
        recorded_config(tmp_path, Settings(shards=2), 1)
    with pytest.raises(ConfigurationError, match="grouping=planner, or with a new checkpoint"):
        recorded_config(tmp_path, Settings(grouping="single"), 1)


@pytest.mark.parametrize("limit", [-1, 0, PLAN_RECORDS_MAX + 1])
def test_a_plan_of_no_transactions_or_too_many_is_refused(
    limit: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(["--checkpoint", "here", "--plan-limit", str(limit)])
    assert f"it is 1 to {PLAN_RECORDS_MAX}" in capsys.readouterr().err
    assert parse(["--checkpoint", "here", "--plan-limit", "1"]).plan_limit == 1


def test_a_folder_that_cannot_be_made_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_spark() -> NoReturn:
        raise LookupError

    monkeypatch.setattr(command, "launched", lambda _: SparkLaunch(no_spark, lambda: None))
    (tmp_path / "file").touch()
    checkpoint = tmp_path / "file" / "checkpoint"
    given = ["--bootstrap", "127.0.0.1:1", "--local", str(tmp_path), "--checkpoint"]
    assert main([*given, str(checkpoint)]) == 2
    assert capsys.readouterr().err == f"streamydb pipeline: {checkpoint}: Not a directory\n"


def test_a_command_that_is_stopped_before_it_runs_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "launched", interrupted)
    assert main(["--checkpoint", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "streamydb pipeline: stopped before it began\n"
