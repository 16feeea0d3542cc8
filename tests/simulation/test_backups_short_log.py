"""A log whose topic keeps records for a time only: what was lost before it was copied is never
passed over in silence.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from streamydb.backup import copy
from streamydb.backup import fork as forking
from streamydb.backup.manifest import BackupError
from streamydb.backup.start import Beginning, begin
from tests.support.kept_log import NAMES, Kept, quiet
from tests.support.seeds import seeds
from tests.support.states import goes_on

SEEDS = seeds(20, 5)


class Short(Kept):
    """The topic deletes what is old, whoever needs it yet."""

    refused, done = 0, 0

    def shorten(self) -> None:
        """Delete the beginning of some partitions."""
        for part in self.kafka.topics[NAMES.transactions]:
            if self.dice.random() < 0.5:
                part.low = self.dice.choice([part.low, self.dice.randint(part.low, part.high)])
                part.records = [each for each in part.records if each.at >= part.low]

    def lost(self) -> bool:
        """Whether records are gone that the backup does not have."""
        return any(low > self._copied(number) for number, low in enumerate(self.lows()))

    def _copied(self, partition: int) -> int:
        segments = self.folder.segments(partition) if self.folder.exists() else []
        return segments[-1].end if segments else 0

    def may(self, *, whole: bool) -> bool:
        """Count what is done because all records are there, and what must be refused."""
        self.done, self.refused = self.done + whole, self.refused + (not whole)
        return whole

    def back_up(self) -> None:
        """Take a backup if nothing was lost; else it says so, and is what it was."""
        if self.may(whole=not self.lost()):
            super().back_up()
            return
        before = self.folder.manifest() if self.folder.exists() else None
        with pytest.raises(BackupError, match="trimmed"):
            self.again(lambda: copy.take(self.folder, self.subject, self.resolved, 2, quiet))
        after = self.folder.manifest() if self.folder.exists() else None
        assert after == before

    def fork(self) -> None:
        """Make a new database if backup and log together have everything; else it is refused."""
        if self.may(whole=not self.lost()):
            super().fork()
            return
        given = self.folder if self.folder.exists() else None
        with pytest.raises(BackupError, match=r"was trimmed|are not in it"):
            self.again(lambda: forking.moment_at(forking.live(self.subject, given), None, quiet))

    def rebuild(self, home: Path) -> Beginning | None:
        """A new checkpoint begins with the newest state, or says that the log lacks the rest."""
        newest = self.folder.state(max(self.folder.manifest().states))
        if self.may(whole=self.has_rest(newest.about().offsets())):
            return super().rebuild(home)
        with pytest.raises(BackupError, match="was trimmed"):
            begin(home / "anew", self.folder.folder, self.made.config, "log", self.lows())
        return None

    def goes_on(self, start: Beginning | None) -> None:
        """Pipelines begin with a state, unless the log has lost its rest since; -2: all of it."""
        if start is None:
            return
        needed = {number: max(at, 0) for number, at in enumerate(start.offsets)}
        if self.may(whole=self.has_rest(needed)):
            goes_on(start, self.made, self.outputs, self.lows(), self.rulings)


@pytest.mark.randomized
def test_what_was_lost_is_told_and_everything_else_is_what_the_log_says(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = done = 0
    for seed in range(1, SEEDS + 1):
        home = tmp_path_factory.mktemp("short")
        with monkeypatch.context() as patches:
            kept = Short(seed, home, patches)
            start = None
            for _ in range(kept.dice.randint(3, 6)):
                kept.grow()
                kept.dice.choice([kept.back_up, kept.shorten])()
                kept.lose_tail()
                if kept.dice.random() < 0.3:
                    start = kept.resize()
            kept.back_up()
            kept.fork()
            if kept.folder.exists() and kept.folder.manifest().states:
                kept.restore()
                start = kept.resize() if kept.dice.random() < 0.5 else kept.rebuild(home)
            kept.goes_on(start)
        refused, done = refused + kept.refused, done + kept.done
    assert min(refused, done) > SEEDS // 2
