"""All differences as a Parquet file: a row each."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

import pyarrow as pa
from pyarrow import parquet

from streamydb.verify.whatif.differences import WhatIfDifference
from streamydb.verify.whatif.stretch import WhatIfError

SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False), pa.field("id", pa.string()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("before", pa.string()), pa.field("after", pa.string()),
    ]
)  # fmt: skip
"""The columns; ``before`` and ``after`` are JSON."""

_ROWS: Final = 10_000


class DifferencesFile:
    """Writes differences as they come; the file has its name when all are in it."""

    def __init__(self, path: Path) -> None:
        """Begin a file beside ``path``. Raises WhatIfError: it cannot be written."""
        if path.is_dir():
            raise WhatIfError(f"{path} is a folder: name a file in it")
        self._path = path
        self._draft = path.with_name(f"{path.name}.draft")
        self._kept: list[WhatIfDifference] = []
        try:
            self._writer = parquet.ParquetWriter(self._draft, SCHEMA)
        except OSError as fault:
            raise WhatIfError(f"{path} cannot be written: {fault.strerror or fault}") from None

    def keep(self, difference: WhatIfDifference) -> None:
        self._kept.append(difference)
        if len(self._kept) >= _ROWS:
            self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Give the file its name, or remove it if something went wrong."""
        try:
            if kind is None:
                self._flush()
            self._writer.close()
            if kind is None:
                self._draft.replace(self._path)
        finally:
            self._draft.unlink(missing_ok=True)

    def _flush(self) -> None:
        rows = [each._asdict() for each in self._kept]
        self._writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
        self._kept.clear()
