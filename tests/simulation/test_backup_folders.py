"""The folder of a backup: two backups at once, and a log that is trimmed behind a damaged state."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamydb.backup import copy
from streamydb.backup.manifest import BackupError
from tests.support.kept_log import Kept
from tests.support.seeds import seeds

SEEDS = seeds(6)


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_of_two_backups_into_one_folder_the_second_is_refused(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(seed, tmp_path, monkeypatch)
    kept.grow()
    refused: list[str] = []

    def second(what: str, *_: int) -> None:
        if what != "copying the log":
            return
        kept.grow()
        try:
            copy.take(kept.folder, kept.subject, kept.resolved, 2, lambda *_: None)
        except BackupError as error:
            refused.append(str(error))

    copy.take(kept.folder, kept.subject, kept.resolved, 2, second)
    assert refused
    assert all("another `streamydb backup` writes to" in said for said in refused)
    kept.sound()
    kept.back_up()


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_a_log_is_not_trimmed_behind_a_damaged_state(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(seed, tmp_path, monkeypatch)
    while not kept.resolved:
        kept.grow()
    kept.back_up()
    parts = sorted((kept.folder.folder / "states").rglob("*.part"))
    assert any(path.name.startswith("values-") for path in parts)
    lows = kept.lows()
    for path in parts:
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(BackupError, match="is damaged"):
            kept._trimmed()
        path.write_bytes(data)
    assert kept.lows() == lows, "nothing was deleted"
    kept.trim()
