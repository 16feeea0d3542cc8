"""Copies of a read model, from which another one is loaded: faster than from the topic, and
possible when its start has expired.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamydb.errors import ReadModelError
from streamydb.local.file_lock import scratch, sync

if TYPE_CHECKING:
    from streamydb.read_model.model import ReadModel

_SHARED: Final = 0o777  # facades of other users read it, as far as the process's mask lets them


def copy_to(model: ReadModel, folder: Path) -> None:
    """Write a consistent copy of a read model, which may be written meanwhile.

    The copy has the position in the topic: open it and follow, and it has the same data. A copy
    that was interrupted leaves nothing at ``folder``.

    Args:
        model: open for reading or writing.
        folder: does not exist yet, or is empty.

    Raises:
        ReadModelError: something is in the folder already, or it cannot be written.
    """
    with drafted(folder) as draft:
        model.store.environment.copy(draft)


@contextmanager
def drafted(folder: Path) -> Iterator[Path]:
    """A folder to make a read model in, which takes its place when the block ends well.

    What a process that was killed has left of one is removed before.

    Raises:
        ReadModelError: something is in ``folder`` already, or it cannot be written.
    """
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ReadModelError(f"{folder} is not empty: name a folder that does not exist yet")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch(folder.parent, f"{folder.name}.partial-", _SHARED) as draft:
            yield draft
            for path in (*draft.iterdir(), draft):
                sync(path)
            draft.replace(folder)
            sync(folder.parent)
    except OSError as fault:
        raise ReadModelError(f"{folder} cannot be written: {fault}") from fault
