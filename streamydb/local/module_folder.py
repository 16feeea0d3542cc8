"""Modules on disk: a folder holds any number of versions side by side, each named by its hash.

`publish` puts a file there as ``<module>.<hash>.py``. A version is also found as a plain
``<module>.py`` whose bytes have the hash, so a folder of sources serves as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from streamydb.errors import ConfigurationError, ModuleMissing
from streamydb.limits import MODULE_BYTES_MAX, PROCEDURE_NAME_CHARACTERS_MAX
from streamydb.local.file_lock import write_whole
from streamydb.procedures.checker import Refusal
from streamydb.procedures.modules import Module, ModuleRefused, compile_module, hash_of, missing

__all__ = ["FolderModules", "Published", "file_name", "load_file", "publish", "published"]


class Published(NamedTuple):
    """A version that lies in a folder."""

    module: str
    hash: str
    path: Path


class FolderModules:
    """Finds modules in folders and files; can be sent to executors."""

    def __init__(self, places: Sequence[Path]) -> None:
        """Look into these, in this order."""
        self.places = tuple(places)
        self._found: dict[tuple[str, str], Module] = {}

    def __getstate__(self) -> tuple[Path, ...]:
        return self.places

    def __setstate__(self, places: tuple[Path, ...]) -> None:
        self.places, self._found = places, {}

    def find(self, name: str, digest: str) -> Module:
        """As `modules.Modules.find`."""
        known = self._found.get((name, digest))
        if known is None:
            known = self._found[name, digest] = self._load(name, digest)
        return known

    def _load(self, name: str, digest: str) -> Module:
        for path in self._candidates(name, digest):
            with contextlib.suppress(OSError):
                if path.stat().st_size > MODULE_BYTES_MAX:
                    continue
                text = path.read_bytes()
                if hash_of(text) == digest:
                    return _compiled(name, text, path)
        fix = "start with --procedures FOLDER, the folder that has its file"
        if self.places:
            where = " or ".join(map(str, self.places))
            fix = f"put its file as {file_name(name, digest)} into {where}, and start again"
        raise ModuleMissing(missing(name, digest, fix))

    def _candidates(self, name: str, digest: str) -> Iterator[Path]:
        for place in self.places:
            if place.suffix == ".py":
                if place.name.partition(".")[0] == name:
                    yield place
            else:
                yield place / file_name(name, digest)
                yield place / f"{name}.py"


def _compiled(name: str, text: bytes, path: Path) -> Module:
    try:
        return compile_module(name, text, str(path))
    except ModuleRefused as refused:
        what = f"module {name} {hash_of(text)} is deployed in the log, and this release refuses it"
        fix = "run the release that it was deployed with"
        first = refused.refusals[0]
        raise ModuleMissing(f"{what} ({first}): {fix}") from None


def file_name(module: str, digest: str) -> str:
    return f"{module}.{digest.removeprefix('sha256:')}.py"


def load_file(path: Path) -> tuple[Module, bytes]:
    """Check and compile a file; its module, named after the file, and its bytes.
    Raises ConfigurationError: it cannot be read, has no module's name, or says what it must not.
    """
    name = path.name.partition(".")[0]
    if path.suffix != ".py" or not (name.isidentifier() and name.isascii()):
        raise ConfigurationError(f"{path} is no module: name the file like bank.py")
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    module = compile_module(name, text, str(path))
    for each in (name, *module.procedures):
        if len(each) > PROCEDURE_NAME_CHARACTERS_MAX:
            most = f"{each}: a name has at most {PROCEDURE_NAME_CHARACTERS_MAX} characters"
            raise ModuleRefused([Refusal(str(path), 1, most)])
    return module, text


def publish(path: Path, folder: Path) -> Module:
    """Check a file and put it into a folder under its name and hash; nothing if it is there.
    Raises ConfigurationError: as `load_file`, or the folder cannot be written.
    """
    module, text = load_file(path)
    target = folder / file_name(module.name, module.hash)
    try:
        if target.exists() and target.read_bytes() == text:
            return module
        write_whole(target, text)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}") from None
    return module


def published(folder: Path) -> list[Published]:
    """The versions in a folder, by module and hash."""
    versions = []
    for path in folder.glob("*.py"):
        parts = path.name.split(".")
        if len(parts) == 3 and len(parts[1]) == 64:
            versions.append(Published(parts[0], "sha256:" + parts[1], path))
    return sorted(versions)
