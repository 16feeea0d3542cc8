"""The overlay against a whole copy of the values, over random writes, reads, scans and ends."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.blobs import KeyScan, end_name, ends_at
from streamydb.key_processor.memory import MemoryValues
from streamydb.pipeline.realtime import overlay as overlays
from streamydb.pipeline.realtime.overlay import OverlayValues
from tests.support.seeds import seeds


class Snapshot:
    """A base in a dict."""

    def __init__(self, data: dict[bytes, bytes]) -> None:
        self._data = dict(data)

    def load(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._data.get(key) for key in keys]

    def items(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(item for item in self._data.items() if item[0] >= start))

    def ends(self, after: bytes) -> Iterator[bytes]:
        names = (end_name(k, v) for k, v in self._data.items() if ends_at(v) is not None)
        return iter(sorted(name for name in names if name > after))

    def close(self) -> None:
        self._data.clear()


def _item(dice: random.Random) -> bytes:
    version = dice.randrange(1, 99).to_bytes(8, "little")
    if dice.random() < 0.4:
        return version + bytes([p.EXPIRING]) + dice.randrange(20).to_bytes(8, "little") + b"1"
    return version + bytes([p.OPAQUE]) + b'"%d"' % dice.randrange(9)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(60, 15)))
def test_it_shows_what_a_whole_copy_shows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(overlays, "_UNORDERED_MAX", dice.choice([1, 3, 99]))
    keys = [b"k%d" % i for i in range(dice.choice([3, 12]))]
    model = MemoryValues()
    model.data = {key: _item(dice) for key in keys if dice.random() < 0.6}
    model.at = (1, "base")
    overlay = OverlayValues(Snapshot(model.data), model.at)
    for step in range(2, 40):
        chosen = dice.sample(keys, dice.randint(0, len(keys)))
        puts = [(key, _item(dice)) for key in chosen if dice.random() < 0.7]
        deletes = [key for key in chosen if key not in dict(puts)]
        ends = [end_name(key, item) for key, item in puts if ends_at(item) is not None]
        reached = (step, f"step {step}")
        for values in (model, overlay):
            assert values.apply(
                model.at if values is model else overlay.position(), reached, puts, deletes, ends
            )
        asked = dice.sample(keys, dice.randint(0, len(keys)))
        assert overlay.load(reached, asked) == model.load(reached, asked)
        assert overlay.sizes(reached, asked) == model.sizes(reached, asked)
        start, end = sorted(dice.choices([*keys, b"", b"z"], k=2))
        scan = KeyScan(
            start, end, set(dice.sample(keys, 1)), dice.randint(0, 9), dice.choice([0, 30])
        )
        assert overlay.scan(reached, scan) == model.scan(reached, scan)
        until, after = dice.randrange(20), dice.choice([b"", *ends])
        most = dice.choice([1, 3, 99])
        assert overlay.due(reached, until, after, most) == model.due(reached, until, after, most)


def test_it_refuses_another_position_and_to_be_cleared() -> None:
    overlay = OverlayValues(Snapshot({}), (1, "base"))
    with pytest.raises(InvariantViolation, match="the state at"):
        overlay.load((2, "other"), [b"k"])
    with pytest.raises(InvariantViolation, match="do not follow"):
        overlay.clear((1, "base"), (0, ""))
    assert not overlay.describe((1, "base"), b"")


def test_its_size_is_that_of_what_it_keeps() -> None:
    overlay = OverlayValues(Snapshot({b"a": b"x" * 20}), (1, "base"))
    overlay.apply((1, "base"), (2, ""), [(b"key", b"0123456789")], [b"a"])
    assert overlay.bytes == len(b"key") + 10 + len(b"a")
    overlay.apply((2, ""), (3, ""), [(b"key", b"01")], [])
    assert overlay.bytes == len(b"key") + 2 + len(b"a")
