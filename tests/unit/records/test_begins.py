"""Where a rule begins that a release has added: recorded once, and decided alike by everybody."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from streamydb.backup.folder import BackupFolder
from streamydb.backup.manifest import BackupError
from streamydb.kafka.admin import TopicDescription
from streamydb.kafka.foundation import FoundingFacts, merged
from streamydb.pipeline.record import begun
from streamydb.records import begins as beginnings
from streamydb.records.begins import Begins
from streamydb.records.rulings import Fault, Rulings

RULE, LATER = "a rule", "a later rule"
EVERYWHERE = Begins({RULE: {}, LATER: {}})


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The release adds two rules."""
    monkeypatch.setattr(beginnings, "RULES", (RULE, LATER))


def topic(*ends: int) -> TopicDescription:
    return TopicDescription("bank.x", len(ends), 1, {}, (0,) * len(ends), ends)


def test_a_rule_begins_at_an_offset_of_each_partition() -> None:
    begins = Begins({RULE: {0: 7, 1: 0}})
    assert [begins.holds(RULE, 0, offset) for offset in (6, 7)] == [False, True]
    assert begins.holds(RULE, 1, 0)
    assert begins.holds(RULE, 2, 0), "a partition that was added later"
    assert not begins.holds("another", 0, 9)
    assert EVERYWHERE.holds(RULE, 0, 0)
    assert not Begins().holds(RULE, 0, 1 << 40)
    assert (EVERYWHERE.missing(), Begins().missing()) == ((), (RULE, LATER))


def test_what_was_executed_before_a_rule_keeps_its_meaning() -> None:
    """An old database gets the rule from the end of its log on, a new one from the beginning."""
    old = begun(FoundingFacts(log="L", partitions=2), topic(5, 9), topic(3))
    assert old.begins.places == {rule: {0: 5, 1: 9} for rule in (RULE, LATER)}
    assert begun(old, topic(50, 90), topic(30)) == old, "recorded once"
    waiting = begun(FoundingFacts(log="L"), topic(5, 9), topic(0))
    assert waiting.begins == EVERYWHERE, "nothing of it was executed"


def test_the_first_record_of_a_place_holds() -> None:
    first, second = (Begins({RULE: {0: at}}) for at in (4, 8))
    both = Begins({**second.places, "later": {0: 9}})
    records = [FoundingFacts(log="L", partitions=1), FoundingFacts(log="L", begins=first)]
    records += [FoundingFacts(log="L", begins=both), FoundingFacts(log="M", begins=EVERYWHERE)]
    found = merged("L", map(msgspec.json.encode, records))
    assert found.begins == Begins({RULE: {0: 4}, "later": {0: 9}})
    assert found.partitions == 1
    assert merged("L", [b'{"log":"L","partitions":1,"format":1}']).begins == Begins()


def test_a_backup_and_what_is_restored_from_it_know_the_place(tmp_path: Path) -> None:
    folder = BackupFolder(tmp_path)
    begins = Begins({RULE: {0: 4, 1: 8}})
    folder.write_rulings(Rulings([Fault(0, 1, "E")], begins))
    assert (folder.rulings().begins, len(folder.rulings())) == (begins, 1)
    (tmp_path / "rulings.json").unlink()
    with pytest.raises(BackupError, match="rulings"):
        folder.rulings()
    cut = begins.cut({0: 3, 1: 20}).places
    assert (cut[RULE], cut[LATER]) == ({0: 3, 1: 8}, {0: 3, 1: 20})
    assert Begins().cut({0: 3, 1: 20}).places == {rule: {0: 3, 1: 20} for rule in (RULE, LATER)}
    assert EVERYWHERE.cut({0: 3}).places == {rule: {0: 0} for rule in (RULE, LATER)}
