"""Folders of snapshots: what a file system refuses is told in a sentence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from streamydb.backup.snapshots import SnapshotError
from streamydb.spark.folders import Folders


def refusal(*_: Any) -> Any:
    """Raise what Py4J makes of an exception of Java."""
    fault = SimpleNamespace(
        _target_id="o1", _gateway_client=SimpleNamespace(converters=[]),
        getMessage=lambda: "/file/x: Not a directory",
    )  # fmt: skip
    raise Py4JJavaError("An error occurred while calling o1.exists", fault)


def folders(find: Any, **system: Any) -> Folders:
    """The folder `/file` on a file system that answers like this."""
    found = SimpleNamespace(**system)
    path = SimpleNamespace(getFileSystem=lambda _: find() or found)
    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=lambda _: path))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))
    spark: Any = SimpleNamespace(_jvm=jvm, _jsc=SimpleNamespace(hadoopConfiguration=str))
    return Folders(spark, "/file")


def test_a_file_system_that_does_not_exist() -> None:
    with pytest.raises(SnapshotError, match=r"no snapshots can be kept in /file: .*Not a dir"):
        folders(refusal)


def test_a_folder_that_cannot_be_one() -> None:
    with pytest.raises(SnapshotError, match="Not a directory"):
        folders(str, exists=refusal).manifest("x")
    with pytest.raises(SnapshotError, match="Not a directory"), folders(
        str, mkdirs=refusal
    ).draft("x"):
        pass
    with pytest.raises(SnapshotError, match="/file cannot be written"), folders(
        str, mkdirs=lambda _: False
    ).draft("x"):
        pass
