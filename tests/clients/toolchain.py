"""The tools that make and compile generated clients, fetched once with the versions of pom.xml and
package-lock.json into the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from streamydb.local.jars import cache_folder

__all__ = [
    "PROGRAMS", "class_path", "fetched", "generate", "maven_jars", "needs", "node_module",
    "node_modules", "run",
]  # fmt: skip

HERE: Final = Path(__file__).parent
PROGRAMS: Final = HERE / "programs"
SECONDS_MAX: Final = 540

HINTS: Final = {
    "java": "a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless)",
    "javac": "a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless)",
    "mvn": "Maven, which fetches the generator (Debian: apt-get install maven)",
    "go": "Go 1.23 or newer (go.dev/dl)",
    "npm": "Node.js 18 or newer with npm (nodejs.org)",
    "node": "Node.js 18 or newer (nodejs.org)",
}
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def needs(*commands: str) -> None:
    """Skip the test if a command is missing, and say what to install."""
    for command in commands:
        if shutil.which(command) is None:
            pytest.skip(f"there is no `{command}`: install {HINTS[command]}")


def run(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Run a command in a folder; return what it printed.

    Raises:
        AssertionError: it failed; has what it said.
    """
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert not done.returncode, f"{command[0]} failed:\n{said[-6_000:]}"
    return done.stdout


def class_path() -> str:
    """Return the class path of the generator and of Java clients, fetched if need be."""
    return str(maven_jars(HERE) / "*")


def maven_jars(where: Path) -> Path:
    """Return the folder with what a folder's pom.xml names, fetched if need be."""
    needs("java", "mvn")
    copy = ["mvn", "-q", "-B", _COPY, "-DoutputDirectory=jars"]
    return fetched(where / "pom.xml", copy) / "jars"


def node_module(name: str) -> Path:
    """Return a command of a Node package, fetched if need be."""
    return node_modules(HERE) / ".bin" / name


def node_modules(where: Path) -> Path:
    """Return the folder with what a folder's package-lock.json names, fetched if need be."""
    needs("node", "npm")
    install = ["npm", "ci", "--no-audit", "--no-fund"]
    return fetched(where / "package-lock.json", install, where / "package.json") / "node_modules"


def generate(language: str, document: Path, folder: Path, options: dict[str, str]) -> None:
    """Have openapi-generator make a client.

    Args:
        language: the generator's name.
        document: the OpenAPI document.
        folder: where the client goes.
        options: further options of the command line.
    """
    words = [word for option in options.items() for word in option]
    run(
        ["java", "-cp", class_path(), "org.openapitools.codegen.OpenAPIGenerator", "generate",
         "-g", language, "-i", document, "-o", folder, *words],
        document.parent,
    )  # fmt: skip


def fetched(manifest: Path, command: list[str], *beside: Path) -> Path:
    """Return the folder that belongs to a manifest's content; the command fills it once."""
    folder = cache_folder() / f"clients-{hashlib.sha256(manifest.read_bytes()).hexdigest()[:16]}"
    done = folder / "done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in (manifest, *beside):
            shutil.copy(file, folder)
        run(command, folder)
        done.touch()
    return folder
