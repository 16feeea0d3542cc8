"""Spark's home: links to the package, without the archive of sources that workers would compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamydb.local.jars import spark_home


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "pyspark"
    for name in ("bin/spark-submit", "jars/spark-core.jar", "python/lib/pyspark.zip"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(name)
    return folder


def test_it_has_the_programs_and_jars_but_no_python(package: Path, tmp_path: Path) -> None:
    home = spark_home(package, tmp_path / "cache")
    assert (home / "bin" / "spark-submit").read_text() == "bin/spark-submit"
    assert (home / "jars" / "spark-core.jar").read_text() == "jars/spark-core.jar"
    assert not (home / "python").exists()


def test_it_is_made_once_for_each_package(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    home = spark_home(package, cache)
    made = home.stat().st_ino
    assert spark_home(package, cache) == home
    assert home.stat().st_ino == made
    assert spark_home(tmp_path / "another", cache) != home
    assert sorted(path.name for path in cache.iterdir() if path.name.startswith(".")) == []


def test_without_a_place_for_it_the_package_serves(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text("a file")
    assert spark_home(package, cache) == package
