"""Spark's home: links to the package, but to no archive of sources that workers would compile, and
to no jar that a pipeline on one machine does not need.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from streamydb.local.jars import needed_jars, spark_home, spark_jars

HIVE = "hive-exec-2.3.10-core.jar"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "pyspark"
    files = (
        "bin/spark-submit", "jars/spark-core_2.13-4.3.0.jar", f"jars/{HIVE}",
        "python/lib/pyspark.zip",
    )  # fmt: skip
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_it_has_the_programs_and_the_jars_that_are_needed_but_no_python(
    package: Path, tmp_path: Path
) -> None:
    home = spark_home(package, tmp_path / "cache")
    assert (home / "bin" / "spark-submit").read_text() == "bin/spark-submit"
    jars = {jar.name: jar.read_text() for jar in (home / "jars").iterdir()}
    assert jars == {"spark-core_2.13-4.3.0.jar": "jars/spark-core_2.13-4.3.0.jar"}
    assert not (home / "python").exists()


def test_it_is_made_once_for_the_jars_of_a_package(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    home = spark_home(package, cache)
    made = home.stat().st_ino
    (package / "jars" / HIVE).unlink()
    assert spark_home(package, cache) == home
    assert home.stat().st_ino == made
    (package / "jars" / "spark-sql_2.13-4.3.0.jar").touch()  # another release in its place
    other = spark_home(package, cache)
    assert other != home
    assert len(list((other / "jars").iterdir())) == 2
    assert sorted(path.name for path in cache.iterdir() if path.name.startswith(".")) == []


def test_without_a_place_for_it_the_package_serves(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text("a file")
    assert spark_home(package, cache) == package


def test_what_is_left_out_of_spark_is_none_of_its_engine() -> None:
    shipped = spark_jars()
    needed = needed_jars(shipped)
    assert needed == [jar for jar in shipped if jar in needed], "in the same order"
    left_out = " ".join(jar.name for jar in shipped if jar not in needed)
    for name in ("hive-exec", "spark-hive_", "kubernetes-model-core", "spark-mllib_", "derby-"):
        assert name in left_out
    for name in ("spark-core", "spark-sql", "catalyst", "parquet", "orc-", "hive-storage", "arrow"):
        assert name not in left_out
