"""A release: all places name one version, what is not ready is refused, and nothing is pushed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import streamydb
from tools import subjects, versions
from tools.release import ROOT, WORDS_MAX, ReleaseError, main, notes, objections, run

VERSION = "7.1.0"
NOTES = f"# Changelog\n\n## {VERSION}\n\n- It can do more.\n"


def test_all_places_name_this_version() -> None:
    assert set(versions.versions().values()) == {streamydb.__version__}


def test_no_other_file_names_the_version() -> None:
    """A place that nobody lists would keep the old version at the next release."""
    listed = {place.partition(":")[0] for place in versions.versions()}
    known = listed | {"CHANGELOG.md", "docs/upgrading.md"}
    tracked = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=False
    ).stdout.split()
    shown = re.compile(rf"(?<![\d.]){re.escape(streamydb.__version__)}(?![\d.])")
    asked = re.compile(r"streamy|version", re.IGNORECASE)
    own = {".py", ".cfg", ".toml", ".json", ".yaml", ".md"}
    files = [
        file
        for file in tracked
        if file not in known
        and Path(file).suffix in own
        and not file.startswith(("bench/results/", "tests/"))
        and (ROOT / file).is_file()
    ]
    assert len(files) > 500 or not tracked
    strays = [
        f"{file}: {line}"
        for file in files
        for line in (ROOT / file).read_text("utf-8").splitlines()
        if shown.search(line) and asked.search(line)
    ]
    assert strays == []


def test_the_changelog_of_this_version_is_read_in_three_minutes() -> None:
    told = notes((ROOT / "CHANGELOG.md").read_text("utf-8"), streamydb.__version__)
    assert told is not None
    assert 50 < len(told.split()) <= WORDS_MAX


def test_upgrading_names_this_version() -> None:
    assert streamydb.__version__ in (ROOT / "docs" / "upgrading.md").read_text("utf-8")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A committed tree in which VERSION is ready to be released."""
    top = tmp_path / "tree"
    for file in {file for file, _, _ in versions.PLACES}:
        (top / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, top / file)
    versions.write(VERSION, top)
    (top / "CHANGELOG.md").write_text(NOTES)
    golden = top / "tests" / "golden" / VERSION
    golden.mkdir(parents=True)
    (golden / "log.json").write_text("[]")
    run(["git", "init", "--quiet", "--initial-branch=main"], top)
    run(["git", "config", "user.email", "a@b.c"], top)
    run(["git", "config", "user.name", "A"], top)
    commit(top)
    return top


def commit(top: Path) -> None:
    run(["git", "add", "--all"], top)
    run(["git", "commit", "--quiet", "--message", "Release: a change"], top)


class Recorder:
    """Runs git; pretends to lint and to build; fails at a command that has `broken` in it."""

    def __init__(self, broken: str = "") -> None:
        """Begin without commands."""
        self.commands: list[str] = []
        self._broken = broken

    def __call__(self, command: list[str], folder: Path) -> str:
        """Run or note a command."""
        self.commands.append(" ".join(command))
        if self._broken and self._broken in self.commands[-1]:
            raise ReleaseError(self._broken)
        if command[0] == "git":
            return run(command, folder)
        if "wheel" in command:
            sources = [Path(name) for name in command[-2:]]
            assert (sources[0] / "streamydb" / "__init__.py").is_file()
            assert (sources[1] / "setup.cfg").is_file()
            target = Path(command[command.index("--wheel-dir") + 1])
            target.mkdir()
            for name in ("streamydb", "streamydb_layers"):
                (target / f"{name}-{VERSION}-py3-none-any.whl").touch()
        return ""


def tags(top: Path) -> str:
    return run(["git", "tag"], top).strip()


def test_a_release_lints_builds_and_tags_and_never_pushes(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder()
    assert main([VERSION], tree, recorder) == 0
    words = ("make lint", " pip wheel ", "git tag --annotate")
    steps = [word for command in recorder.commands for word in words if word in command]
    assert steps == list(words)
    assert [command for command in recorder.commands if "push" in command] == []
    assert tags(tree) == f"v{VERSION}"
    assert "git push origin v7.1.0" in capsys.readouterr().out
    assert len(list((tree / "dist").glob("*.whl"))) == 2
    assert len(run(["git", "worktree", "list"], tree).splitlines()) == 1


@pytest.mark.parametrize("broken", ["lint", "wheel"])
def test_a_step_that_fails_leaves_no_tag(
    broken: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([VERSION], tree, Recorder(broken)) == 1
    assert broken in capsys.readouterr().err
    assert tags(tree) == ""
    assert len(run(["git", "worktree", "list"], tree).splitlines()) == 1


def test_a_tree_with_changes_is_refused(tree: Path) -> None:
    (tree / "new.txt").touch()
    (found,) = objections(VERSION, tree, run)
    assert "not clean" in found
    assert "new.txt" in found


@pytest.mark.parametrize("file", sorted({file for file, _, _ in versions.PLACES}))
def test_each_place_that_names_another_version_is_told(file: str, tree: Path) -> None:
    path = tree / file
    path.write_text(path.read_text("utf-8").replace(VERSION, "7.0.9", 1))
    commit(tree)
    (found,) = objections(VERSION, tree, run)
    assert f"  7.0.9      {file}:" in found
    assert f"python tools/versions.py {VERSION}" in found


@pytest.mark.parametrize(
    ("changelog", "told"),
    [
        ("# Changelog\n", "has no section"),
        (f"# Changelog\n\n## {VERSION}\n", "has no section"),
        (NOTES + "\n## Unreleased\n\n- More.\n", "unreleased changes"),
        (NOTES + "word " * WORDS_MAX, f"{WORDS_MAX} are read"),
    ],
)
def test_a_changelog_that_is_not_ready_is_refused(changelog: str, told: str, tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text(changelog)
    commit(tree)
    (found,) = objections(VERSION, tree, run)
    assert told in found


def test_an_empty_section_of_unreleased_changes_is_no_obstacle(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text(NOTES.replace("## 7", "## Unreleased\n\n## 7"))
    commit(tree)
    assert objections(VERSION, tree, run) == []


def test_a_release_without_golden_files_or_made_before_is_refused(tree: Path) -> None:
    shutil.rmtree(tree / "tests")
    commit(tree)
    run(["git", "tag", f"v{VERSION}"], tree)
    tag, golden = objections(VERSION, tree, run)
    assert "is made once" in tag
    assert "tests/golden/7.1.0 is missing" in golden


@pytest.mark.parametrize("word", ["", "7.1", "v7.1.0", "7.1.0; ls"])
def test_what_is_no_version_is_refused(word: str, tree: Path) -> None:
    (found,) = objections(word, tree, run)
    assert "is no version" in found
    if word:
        with pytest.raises(ValueError, match="is no version"):
            versions.write(word, tree)


def test_a_place_that_has_gone_is_told(tree: Path) -> None:
    (tree / "docker" / "Dockerfile").write_text("FROM scratch\n")
    assert versions.main([], tree) == 1
    with pytest.raises(LookupError, match="docker/Dockerfile names its version 0 times"):
        versions.versions(tree)


def test_places_that_differ_are_printed(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert versions.main([], tree) == 0
    path = tree / "layers" / "setup.cfg"
    path.write_text(path.read_text("utf-8").replace(VERSION, "1.0.0"))
    assert versions.main([], tree) == 1
    assert "1.0.0      layers/setup.cfg" in capsys.readouterr().out
    assert versions.main(["8.0.0rc1"], tree) == 0
    assert set(versions.versions(tree).values()) == {"8.0.0rc1"}


@pytest.mark.parametrize(
    ("subject", "told"),
    [
        ("Facade: an answer names its request", None),
        ("Read model: " + "a" * 59, None),
        ("Read model: " + "a" * 60, "72 characters"),
        ('Revert "Facade: an answer"', None),
        ("Facade, client: files join", None),
        ("Mend a test", "no room"),
        ("facade: an answer", "no room"),
        ("Facade:", "no room"),
    ],
)
def test_a_subject_is_short_and_names_its_room(subject: str, told: str | None) -> None:
    found = subjects.fault(subject)
    assert found is None if told is None else told in (found or "")


def test_subjects_since_a_date_are_judged_and_merges_are_free(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit_at(date: str, subject: str) -> None:
        monkeypatch.setenv("GIT_COMMITTER_DATE", date)
        run(["git", "commit", "--quiet", "--allow-empty", "--message", subject], tree)

    since = "2090-01-02T00:00:00+00:00"
    commit_at("2090-01-01T23:59:00+00:00", "before the rule")
    assert subjects.faults(since, tree) == []
    run(["git", "checkout", "--quiet", "-b", "other"], tree)
    commit_at("2090-01-02T00:01:00+00:00", "wrong")
    run(["git", "checkout", "--quiet", "main"], tree)
    commit_at("2090-01-02T00:02:00+00:00", "Docs: right")
    run(["git", "merge", "--quiet", "--no-ff", "--message", "merge other", "other"], tree)
    (found,) = subjects.faults(since, tree) or []
    assert "wrong: no room" in found


def test_without_a_history_no_subject_is_judged(tmp_path: Path) -> None:
    assert subjects.faults(root=tmp_path) is None
