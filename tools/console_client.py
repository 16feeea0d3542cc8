"""Compile the TypeScript client for the console, which serves it without a build step.

    python -m tools.console_client

Each module of `clients/typescript/src` becomes one of `streamydb/facade/console/static/client`,
which names the hash of its source in its first line. `make test` fails when a source has changed
since; `make test-clients` compiles again and compares every byte.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["FOLDER", "compiled", "head", "modules"]

_ROOT: Final = Path(__file__).resolve().parents[1]
_PACKAGE: Final = _ROOT / "clients/typescript"
_SOURCES: Final = _PACKAGE / "src"
FOLDER: Final = _ROOT / "streamydb/facade/console/static/client"
_TYPES_ONLY: Final = "types.ts"
"""Has nothing that runs, so that nothing imports it once it is compiled."""


def head(source: Path) -> str:
    """Return the first line of a compiled module."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    made = f"Made of clients/typescript/src/{source.name} ({digest})"
    return f"// {made}: python -m tools.console_client\n"


def modules() -> dict[str, Path]:
    """Return the sources by the names of their compiled modules."""
    sources = (each for each in sorted(_SOURCES.iterdir()) if each.name != _TYPES_ONLY)
    return {f"{source.stem}.js": source for source in sources}


def compiled(compiler: Path) -> dict[str, str]:
    """Return the modules by name, compiled by `compiler` (TypeScript's `tsc`)."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(compiler), "-p", ".", "--outDir", folder, "--declaration", "false"]
        subprocess.run(command, check=True, cwd=_PACKAGE)
        return {
            name: head(source) + (Path(folder) / name).read_text("utf-8")
            for name, source in modules().items()
        }


def _main() -> None:
    """Write the modules; the compiler is the one that the package's lock names."""
    compiler = _PACKAGE / "node_modules/.bin/tsc"
    if not compiler.exists():
        install = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(install, check=True, cwd=_PACKAGE)
    written = compiled(compiler)
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.iterdir():
        file.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _main()
