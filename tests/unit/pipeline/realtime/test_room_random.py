"""A start that has room for one reader of a large record: which base its real-time gear takes."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from streamydb.key_processor.base import Base
from streamydb.local.shard_files import LmdbValues
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.large_records import LargeRecord, with_room
from streamydb.pipeline.realtime.gear import RealTimeGear
from streamydb.settings import Settings
from tests.support.micro_batches import CONFIG, MicroBatches, put
from tests.support.seeds import seeds

pytestmark = pytest.mark.randomized

RECORDS = 12


def base_of(config: PipelineConfig) -> Base | None:
    """The base with which a gear of this start would begin."""
    gear: Any = RealTimeGear.__new__(RealTimeGear)
    gear._start = SimpleNamespace(config=config, shard=CONFIG)
    found: Base | None = gear._base()
    return found


@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_it_is_one_that_has_executed_the_large_record(seed: int, tmp_path: Path) -> None:
    """Micro-batches of any size go over the record; a start without one takes each base."""
    dice = random.Random(f"room {seed}")
    settings = Settings(database="bank", bootstrap="127.0.0.1:1")
    usual = PipelineConfig(settings, tmp_path / "checkpoint", "local[2]", tmp_path / "local")
    large = LargeRecord(0, dice.randrange(RECORDS), 300_000_000, 4_000)
    usual.checkpoint.mkdir()
    usual.large_record.write_bytes(msgspec.json.encode(large))
    roomy = with_room(usual)
    micro_batches = MicroBatches(usual.local)
    position, taken = 0, set[bool]()
    while position <= RECORDS:
        assert base_of(roomy) is None or position > large.offset
        count = dice.randint(1, 5)
        micro_batches.execute(
            *(put(f"t{position + i}", dice.choice("abc"), i) for i in range(count))
        )
        position += count
        bases = base_of(usual), base_of(roomy)
        expected = [position, position if position > large.offset else None]
        assert [base and base.position for base in bases] == expected
        taken.add(bases[1] is not None)
    assert True in taken
    LmdbValues.close(micro_batches.folder)
