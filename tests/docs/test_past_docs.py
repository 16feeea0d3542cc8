"""The example of docs/past.md is true: its code runs, and says what is printed there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from streamydb.backup import BackupFolder, BackupManifest
from streamydb.backup.pieces import Piece
from streamydb.cli import app
from streamydb.local.module_folder import file_name
from streamydb.procedures.modules import compile_module
from streamydb.records.rulings import NO_RULINGS

PAGE = (Path(__file__).parents[2] / "docs" / "past.md").read_text("utf-8")
CODE = dict(re.findall(r"^```python (\w+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
SHOWN = re.findall(r"^\$ (streamydb whatif [^\n]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def log() -> list[bytes]:
    """What the page tells of."""
    module = compile_module("shop", CODE["shop.py"].encode())
    procedures = {name: list(args) for name, args in module.procedures.items()}
    records: list[dict[str, Any]] = [
        {"id": "shop", "deploy": {"module": "shop", "hash": module.hash, "procedures": procedures}},
        {"id": "tea", "updates": [{"op": "put", "key": "tea", "value": 10}]},
    ]
    for name, count in (("ann", 2), ("bob", 6), ("cyd", 1), ("dan", 4)):
        call = {"procedure": "shop.sell", "args": {"item": "tea", "count": count},
                "keys": ["tea", "sold"]}  # fmt: skip
        records.append({"id": name, "call": call})
    return [json.dumps(record).encode() for record in records]


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = log()
    offsets = np.arange(len(records), dtype=np.int64)
    backup = BackupFolder(tmp_path / "backup")
    backup.add_segment(Piece(0, offsets, 1000 + offsets, [None] * len(records), list(records)),
                       0, len(records))  # fmt: skip
    backup.write_rulings(NO_RULINGS)
    backup.write_manifest(BackupManifest(
        format=1, database="shop", log="log", shards=1, grouping="planner", partitions=1,
        id_window=100, digest_interval=100, seq=6, ts_ms=1005,
        ends={0: len(records)}, states=[],
    ))  # fmt: skip
    text = CODE["shop.py"].encode()
    backup.procedures.mkdir()
    digest = compile_module("shop", text).hash
    (backup.procedures / file_name("shop", digest)).write_bytes(text)
    monkeypatch.chdir(tmp_path)
    Path("new_shop.py").write_text(CODE["new_shop.py"])
    ((command, printed),) = SHOWN
    words = [*command.split()[1:], "--backup", str(backup.folder), "--home", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 3, done.stderr
    assert done.stdout == printed
