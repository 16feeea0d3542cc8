"""Fetching jars: what Ivy is asked, what is read of its answer, the stamp. A script plays Ivy."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamydb.local import jars
from streamydb.local.java import JavaError, find_java, parse_version
from streamydb.local.resources import shipped_file, spark_defaults

ROOT = Path(__file__).resolve().parents[3]

FakeJava = Callable[[str], Path]

_SCRIPT = """#!{python}
import sys, pathlib
if "-version" in sys.argv:
    print('openjdk version "{version}" 2025-04-15', file=sys.stderr)
    raise SystemExit
calls = pathlib.Path({calls!r})
calls.write_text((calls.read_text() if calls.exists() else "") + repr(sys.argv) + chr(10))
pattern = sys.argv[sys.argv.index("-retrieve") + 1]
into = pathlib.Path(pattern).parent
{body}
"""

WORKING = """
print("\\tfound org.a#one;1 in public")
print("downloading https://registry/org/a/one/1/one-1.jar ...")
print("\\t[SUCCESSFUL ] org.a#one;1!one.jar (12ms)")
(into / "one-1.jar").write_bytes(b"one")
(into / "two-2.jar").write_bytes(b"two!")
"""
UNREACHABLE = """
print("\\tServer access error at url https://registry/x (java.net.ConnectException: refused)")
print("\\t\\t:: org.a#one;1: not found")
raise SystemExit(1)
"""


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJava:
    """Put a script in the place of Java; its body plays Ivy."""

    def make(body: str, version: str = "17.0.1") -> Path:
        java = tmp_path / f"jdk-{version}-{abs(hash(body))}" / "bin" / "java"
        java.parent.mkdir(parents=True)
        calls = str(tmp_path / "calls")
        java.write_text(
            _SCRIPT.format(python=sys.executable, version=version, calls=calls, body=body)
        )
        java.chmod(java.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
        return tmp_path / "calls"

    return make


def test_jars_are_fetched_once_and_progress_is_told(fake_java: FakeJava, tmp_path: Path) -> None:
    calls = fake_java(WORKING)
    steps: list[jars.FetchProgress] = []
    found = jars.resolve("pipeline", tmp_path / "cache", steps.append)
    assert [jar.name for jar in found] == ["one-1.jar", "two-2.jar"]
    assert [(step.stage, step.artifacts) for step in steps] == [
        ("resolving", 1),
        ("downloading", 0),
        ("downloading", 1),
        ("done", 2),
    ]
    steps.clear()
    assert jars.resolve("pipeline", tmp_path / "cache", steps.append) == found
    assert steps == []
    assert len(calls.read_text().splitlines()) == 1


def test_a_damaged_cache_and_a_changed_manifest_are_fetched_again(
    fake_java: FakeJava, tmp_path: Path
) -> None:
    calls = fake_java(WORKING)
    manifest = tmp_path / "ivy.xml"
    manifest.write_text("<a/>")
    cache = tmp_path / "cache"
    first = jars.resolve("broker", cache, manifest=manifest)
    first[0].write_bytes(b"")
    assert jars.cached("broker", cache, manifest) is None
    assert jars.resolve("broker", cache, manifest=manifest) == first
    assert first[0].read_bytes() == b"one"
    manifest.write_text("<b/>")
    assert jars.resolve("broker", cache, manifest=manifest) != first
    assert len(calls.read_text().splitlines()) == 3


def test_many_at_once_fetch_once(fake_java: FakeJava, tmp_path: Path) -> None:
    calls = fake_java(WORKING)
    with ThreadPoolExecutor(8) as pool:
        lists = list(pool.map(lambda _: jars.resolve("broker", tmp_path / "cache"), range(8)))
    assert all(found == lists[0] for found in lists)
    assert len(calls.read_text().splitlines()) == 1


def test_an_unreachable_registry_is_told_with_what_to_do(
    fake_java: FakeJava, tmp_path: Path
) -> None:
    fake_java(UNREACHABLE)
    with pytest.raises(jars.JarsError) as caught:
        jars.resolve("pipeline", tmp_path / "cache")
    for part in ("https://registry/x", "org.a#one;1", "HTTPS_PROXY", "STREAMYDB_IVY_SETTINGS"):
        assert part in str(caught.value)
    assert jars.cached("pipeline", tmp_path / "cache") is None
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_proxy_and_settings_reach_ivy(
    fake_java: FakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake_java(WORKING)
    settings = tmp_path / "ivysettings.xml"
    monkeypatch.setenv("STREAMYDB_IVY_SETTINGS", str(settings))
    with pytest.raises(jars.JarsError, match="not a file"):
        jars.resolve("pipeline", tmp_path / "cache")
    settings.write_text("<ivysettings/>")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "localhost,.example")
    jars.resolve("pipeline", tmp_path / "cache")
    call = calls.read_text()
    assert f"'-settings', '{settings}'" in call
    assert "-Dhttps.proxyHost=proxy.example" in call
    assert "-Dhttps.proxyPort=3128" in call
    assert "-Dhttp.nonProxyHosts=localhost|*.example" in call


def test_an_unwritable_cache_is_told(fake_java: FakeJava, tmp_path: Path) -> None:
    fake_java(WORKING)
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(jars.JarsError, match="STREAMYDB_CACHE"):
        jars.resolve("pipeline", tmp_path / "cache")


def test_an_unknown_configuration_is_refused() -> None:
    with pytest.raises(ValueError, match="pipeline, broker"):
        jars.resolve("pipelines")


def test_the_cache_folder(tmp_path: Path) -> None:
    assert jars.cache_folder({"STREAMYDB_CACHE": str(tmp_path)}) == tmp_path
    assert jars.cache_folder({}) == Path.home() / ".cache" / "streamydb"


def test_the_class_path() -> None:
    assert jars.class_path([Path("a"), Path("b")]) == f"a{os.pathsep}b"


def test_the_image_has_what_fetches_the_jars(tmp_path: Path) -> None:
    """It is copied file by file, so that other changes do not fetch the jars again."""
    steps = (ROOT / "docker/Dockerfile").read_text().replace("\\\n", "").splitlines()
    fetch = next(i for i, step in enumerate(steps) if "-m streamydb.local.jars" in step)
    for step in steps[:fetch]:
        words = step.split()
        if words[:1] == ["COPY"] and words[-1].startswith("streamydb/"):
            (tmp_path / words[-1]).mkdir(parents=True, exist_ok=True)
            for name in words[1:-1]:
                shutil.copy(ROOT / name, tmp_path / words[-1])
    command = [sys.executable, "-P", "-m", "streamydb.local.jars", "--packages"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "spark-sql-kafka" in done.stdout, done.stderr


def test_the_manifest_pins_every_version() -> None:
    text = shipped_file("ivy.xml").read_text()
    assert 'rev="4.2.0"' in text
    assert "latest" not in text
    assert "+" not in text


def test_the_command_prints_a_class_path_or_the_error(
    fake_java: FakeJava, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_java(UNREACHABLE)
    arguments = ["--cache", str(tmp_path / "cache"), "--class-path", "pipeline"]
    assert jars.main(arguments) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "STREAMYDB_IVY_SETTINGS" in output.err
    fake_java(WORKING)
    assert jars.main(arguments) == 0
    found = capsys.readouterr().out.strip().split(os.pathsep)
    assert [Path(jar).name for jar in found] == ["one-1.jar", "two-2.jar"]
    assert jars.main(["--cache", str(tmp_path / "cache"), "broker"]) == 0
    assert "broker: 2 jars in" in capsys.readouterr().out


def test_spark_defaults_are_settings_of_spark_and_leave_sizes_to_the_job() -> None:
    settings = spark_defaults()
    assert all(name.startswith("spark.") for name in settings)
    assert settings["spark.hadoop.fs.file.impl"].endswith("BareLocalFileSystem")
    assert "spark.sql.shuffle.partitions" not in settings


def test_a_missing_top_level_file_is_told() -> None:
    with pytest.raises(FileNotFoundError, match="Install the package again"):
        shipped_file("no-such-file")


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("no such thing", None),
    ],
)
def test_java_versions_are_read(output: str, version: int | None) -> None:
    assert parse_version(output) == version


def test_an_old_java_is_refused(fake_java: Callable[[str, str], Path]) -> None:
    fake_java("", "11.0.2")
    with pytest.raises(JavaError, match="is Java 11; at least 17"):
        find_java()


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ('IMPLEMENTOR="Debian"\nJAVA_VERSION="21.0.4"\n', 21),
        ('JAVA_VERSION="25"\n', 25),
        ('JAVA_RUNTIME_VERSION="21.0.4+7"\n', 17),
    ],
)
def test_a_java_that_says_its_version_in_a_file_is_not_started_for_it(
    tmp_path: Path, release: str, version: int
) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\"'\n")
    java.chmod(0o755)
    (tmp_path / "release").write_text(release)
    assert find_java({"JAVA_HOME": str(tmp_path)}).version == version


def test_a_wrong_or_missing_java_is_told(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="JAVA_HOME is"):
        find_java({"JAVA_HOME": str(tmp_path)})
    with pytest.raises(JavaError, match="no `java` on PATH"):
        find_java({"PATH": str(tmp_path)})
