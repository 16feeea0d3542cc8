"""The documentation is true: links resolve; commands and options exist and are documented."""

from __future__ import annotations

import importlib
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text

from streamydb.cli import app
from streamydb.facade import FacadeSettings
from streamydb.pipeline.__main__ import _parser, parse
from streamydb.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / page for page in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / page for page in ("tests/README.md", "bench/README.md")),
    ROOT / "clients" / "typescript" / "README.md",
    ROOT / "layers" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
PROGRAMS = {
    name: typer.main.get_command(importlib.import_module(module).app)
    for name, module in (
        ("bench", "bench.main"), ("sim", "simulator.main"), ("demo", "bench.demo"),
        ("histories", "histories.main"),
    )
}  # fmt: skip
"""Those to which a command hands its arguments on."""

HELPED = {
    **COMMANDS,
    **{
        f"{program} {name}": command
        for program, found in PROGRAMS.items()
        for name, command in getattr(found, "commands", {"": found}).items()
    },
}
PASSED_TO_THE_PIPELINE = set(_parser(submitted=False)._option_string_actions)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
MODULE = re.compile(r"`([a-z_]+/[a-z_/]+\.py)`")
SETTINGS = [
    *(ROOT / file for file in ("Makefile", "pyproject.toml", "setup.cfg", "spark-defaults.conf")),
    *(ROOT / "streamydb/local" / file for file in ("ivy.xml", "log4j2.properties")),
    *(file for folder in ("deploy", "docker") for file in (ROOT / folder).rglob("*.y*ml")),
    ROOT / "docker" / "Dockerfile",
]
CODE = [
    file
    for folder in ("bench", "jobs", "layers", "simulator", "streamydb", "tools")
    for file in (ROOT / folder).rglob("*.py")
]
OWN_FILE = re.compile(
    r"\b(?:bench|docs|layers|simulator|streamydb|tests|tools)/[\w/]+\.(?:py|md|sh)\b"
)
CALL = re.compile(r"(?:^|[\s/`])streamydb ([a-z-]+)((?: [^`|\n]*)?)")
SHORT_CALL = re.compile(r"`([a-z-]+)((?: --[^`\n]*)+)`")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text("utf-8")) if "://" not in link]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_a_heading(page: Path) -> None:
    for target, anchor in ANCHOR.findall(page.read_text("utf-8")):
        other = page.parent / target if target else page
        if "://" not in target and other.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", other.read_text("utf-8"), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings]
            assert anchor in anchors, f"{name(page)}: {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_modules_that_are_named_exist(page: Path) -> None:
    folders = (ROOT, ROOT / "streamydb", ROOT / "tests", page.parent)
    for path in MODULE.findall(page.read_text("utf-8")):
        assert any((folder / path).exists() for folder in folders), f"{name(page)}: {path}"


def test_files_that_settings_and_code_name_exist() -> None:
    files = [*SETTINGS, *CODE]
    named = [(file, path) for file in files for path in OWN_FILE.findall(file.read_text("utf-8"))]
    assert len(named) > 50
    assert [f"{name(file)}: {path}" for file, path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_options_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    short = [found for found in SHORT_CALL.findall(text) if found[0] in COMMANDS]
    for command, rest in [*CALL.findall(text), *short]:
        if command not in COMMANDS:
            assert command in {"is", "pipeline"}, f"{name(page)}: no command {command}"
            continue
        found = COMMANDS[command]
        if command in PROGRAMS:
            found = PROGRAMS[command]
            words = re.findall(r"^ +([a-z]+)", rest)
            if isinstance(found, typer.core.TyperGroup) and words:
                assert words[0] in found.commands, f"{name(page)}: {command} has no {words[0]}"
                found = found.commands[words[0]]
        known = {
            option for param in found.params for option in (*param.opts, *param.secondary_opts)
        }
        # `--option=--name=value` passes an option on to the pipeline's own parser.
        for passed in re.findall(r"--option=(--[a-z-]+)", rest):
            assert passed in PASSED_TO_THE_PIPELINE, f"{name(page)}: the pipeline has no {passed}"
        for option in re.findall(r"(?<!=)(--[a-z][a-z-]*)", rest):
            assert option in known, f"{name(page)}: streamydb {command} has no {option}"


@pytest.mark.parametrize("command", sorted(HELPED))
def test_help_is_shown_as_it_is_written(command: str) -> None:
    """Square brackets are markup, which swallows words like `[default: 1]`."""
    found = HELPED[command]
    texts = [found.help or "", *(getattr(param, "help", None) or "" for param in found.params)]
    assert [Text.from_markup(text).plain for text in texts] == texts


def test_every_command_and_setting_is_documented() -> None:
    text = (ROOT / "docs/commands.md").read_text("utf-8")
    assert [c for c in COMMANDS if f"`streamydb {c}`" not in text] == []
    settings = [f"STREAMYDB_{field.upper()}" for field in Settings.model_fields]
    settings += [f"STREAMYDB_SERVE_{field.upper()}" for field in FacadeSettings.model_fields]
    assert [variable for variable in settings if variable not in text] == []


def test_the_spark_submit_example_is_what_the_job_takes() -> None:
    text = (ROOT / "docs/production.md").read_text("utf-8")
    (example,) = re.findall(r"jobs/pipeline\.py\)\" \\\n +([^\n]+)", text)
    for more, name in (([], ""), (["--standby"], "standby")):
        config = parse([*example.split(), *more], submitted=True)
        assert (config.settings.database, config.settings.shards) == ("bank", 4)
        assert config.master is None
        assert (config.standby, config.name) == (bool(name), name)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_is_installed_exists(page: Path) -> None:
    """The package is in no registry: it comes of a checkout or of a wheel that was made there."""
    wanted = re.findall(r"pip install ([^`\n]+)", page.read_text("utf-8"))
    assert [what for what in wanted if re.match(r"['\"]?streamydb\b", what)] == []


def test_no_message_installs_what_is_in_no_registry() -> None:
    wanted = re.compile(r"pip install (?:--\S+ )*['\"]?streamydb\b")
    assert [name(file) for file in CODE if wanted.search(file.read_text("utf-8"))] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"`make ([a-z-]+)`", page.read_text("utf-8")):
        assert f"\n{target}:" in makefile, f"{name(page)}: no target {target}"


def test_the_measured_figures_are_those_that_were_kept() -> None:
    found = runpy.run_path(str(ROOT / "bench" / "table.py"))
    assert found["table"]() in (ROOT / "README.md").read_text("utf-8")
    performance = (ROOT / "docs/performance.md").read_text("utf-8")
    assert found["rest_table"]() in performance
    assert found["soak_table"]() in performance
    assert found["literature_table"]()
    assert found["literature_table"]() in performance


def test_the_sizes_are_those_that_were_kept() -> None:
    kept = json.loads((ROOT / "bench/results/sizes-1-shard.json").read_text("utf-8"))
    text = (ROOT / "docs/performance.md").read_text("utf-8")
    for row in kept["series"]:
        runs = ", ".join(f"{rate:,.0f}" for rate in row["runs"])
        assert f"| {row['accounts']:,} |" in text
        assert runs in text


@pytest.mark.parametrize(
    ("kind", "prefix"), [(Settings, "STREAMYDB_"), (FacadeSettings, "STREAMYDB_SERVE_")]
)
def test_the_defaults_are_those_of_the_code(kind: type[Any], prefix: str) -> None:
    text = (ROOT / "docs/commands.md").read_text("utf-8")
    told = dict(re.findall(r"^\| `(STREAMYDB_[A-Z_]+)` \| *([^|]*?) *\|", text, re.MULTILINE))
    for field, about in kind.model_fields.items():
        default = about.get_default(call_default_factory=True)
        shown = told.pop(prefix + field.upper()).strip("`").replace("~", str(Path.home()))
        if isinstance(default, int | float) and not isinstance(default, bool):
            assert float(shown) == default, field
        elif isinstance(default, bool):
            assert shown == str(default).lower(), field
        else:
            assert shown == str(default or ""), field
