"""The console's copy of the TypeScript client is made of the sources as they are."""

from __future__ import annotations

from tools.console_client import FOLDER, head, modules


def test_every_module_was_compiled_since_its_source_changed() -> None:
    heads = {path.name: path.read_text("utf-8").partition("\n")[0] for path in FOLDER.iterdir()}
    made = {name: head(source).rstrip("\n") for name, source in modules().items()}
    assert heads == made, "run: python -m tools.console_client"
