"""docker/make-tokens.sh: repeated, it takes nobody's token away."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "docker" / "make-tokens.sh"


def made(folder: Path, code: int = 0) -> str:
    done = subprocess.run(
        ["sh", str(SCRIPT), str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stderr


def digest(folder: Path, name: str) -> str:
    return hashlib.sha256((folder / f"{name}-token").read_bytes()).hexdigest()


def test_what_is_there_is_kept_and_what_is_lacking_is_named(tmp_path: Path) -> None:
    folder, tokens = tmp_path / "secrets", tmp_path / "secrets" / "tokens.json"
    assert made(folder) == ""
    first = json.loads(tokens.read_bytes())
    assert [(each["name"], each["sha256"]) for each in first] == [
        (name, digest(folder, name)) for name in ("app", "metrics")
    ]
    assert first[0]["write"] == [""]
    assert "write" not in first[1]
    tokens.write_text(json.dumps([*first, {"name": "new", "sha256": "0" * 64}]))
    assert made(folder) == ""
    (folder / "app-token").unlink()
    said = made(folder, 1)
    assert "lacks app-token: add {" in said
    assert digest(folder, "app") in said
    assert [each["name"] for each in json.loads(tokens.read_bytes())] == ["app", "metrics", "new"]
