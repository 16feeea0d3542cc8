"""The console's copy of the TypeScript client is made of the sources as they are."""

from __future__ import annotations

from tools.console_client import FOLDER, head, modules


def test_every_module_was_compiled_since_its_source_changed() -> None:
    copied = {path.name: path.read_text("utf-8").partition("\n")[0] + "\n" for path in FOLDER.iterdir()}
    assert copied == {name: head(source) for name, source in modules().items()}, (
        "run: python -m tools.console_client"
    )
