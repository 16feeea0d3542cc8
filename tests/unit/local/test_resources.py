"""The files that a wheel ships: the jobs, what Spark is told, and what Ivy fetches."""

from __future__ import annotations

import configparser
import re
from importlib import metadata
from pathlib import Path, PurePosixPath

import pytest

from streamydb.local import jars, resources
from streamydb.local.resources import SHIPPED, main, shipped_file
from streamydb.pipeline import session

TOP = Path(__file__).resolve().parents[3]
ROOM = TOP / "streamydb" / "local"
IN_THE_ROOM = ("ivy.xml", "log4j2.properties")


def test_the_wheel_ships_what_is_asked_for() -> None:
    setup = configparser.ConfigParser()
    setup.read(TOP / "setup.cfg", encoding="utf-8")
    files = setup["options.data_files"]
    beside = sorted(name for one in files.values() for name in one.split())
    packaged = setup["options.package_data"]["streamydb.local"].replace(",", " ").split()
    assert sorted(SHIPPED) == sorted([*beside, *packaged])
    assert sorted(packaged) == sorted(IN_THE_ROOM)
    folders = {one: str(PurePosixPath(folder)) for folder in files for one in files[folder].split()}
    for name in beside:
        assert f"{folders[name]}/{Path(name).name}" == f"share/streamydb/{name}"
        assert shipped_file(name) == TOP / name
    for name in packaged:
        assert shipped_file(name) == ROOM / name


def test_an_installation_finds_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No checkout around it: the installation's record says where the files are."""
    monkeypatch.setattr(resources, "__file__", str(tmp_path / "site/streamydb/local/resources.py"))
    job = tmp_path / "share" / "streamydb" / "jobs" / "pipeline.py"
    job.parent.mkdir(parents=True)
    job.touch()
    recorded = [
        metadata.PackagePath("../share/streamydb/jobs/pipeline.py"),
        metadata.PackagePath("streamydb/backup/snapshots/share/pipeline.py"),
    ]
    for one in recorded:
        one.dist = _Place(tmp_path / "site")  # type: ignore[assignment]
    monkeypatch.setattr(metadata, "files", lambda _: recorded[::-1])
    assert main(["jobs/pipeline.py"]) == 0
    assert Path(capsys.readouterr().out.strip()) == job
    assert main([]) == 1, "the others are missing"
    assert "ivy.xml belongs to streamy-db but is neither in" in capsys.readouterr().err


class _Place:
    """An installation in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def locate_file(self, path: object) -> Path:
        return self._folder / str(path)


def test_the_command_prints_all_or_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.split() == [str(shipped_file(name)) for name in SHIPPED]
    assert main(["nonsense"]) == 1
    assert "no file 'nonsense'; there are ivy.xml, jobs/pipeline.py" in capsys.readouterr().err


def test_packages_are_what_the_manifest_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert jars.main(["--packages"]) == 0
    printed = capsys.readouterr().out.strip().split(",")
    text = (ROOM / "ivy.xml").read_text("utf-8")
    found = re.findall(r'org="(\S+)" name="(\S+)" rev="(\S+)" conf="pipeline->', text)
    assert printed == [":".join(one) for one in found]
    assert len(printed) == 5
    fetched = jars.cached("pipeline")
    if fetched is not None:
        names = {"{1}-{2}.jar".format(*one.split(":")) for one in printed}
        assert names == {jar.name for jar in fetched}


def test_the_log_of_the_jvm_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "resolve", lambda _: [])
    monkeypatch.setattr(session, "java_options", lambda *_: [])
    options = session._defaults("local[2]")["spark.driver.extraJavaOptions"]
    assert f'"-Dlog4j2.configurationFile={ROOM / "log4j2.properties"}"' in options
    assert "-XX:+UseG1GC" in options
