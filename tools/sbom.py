"""`make sbom`: the software bill of materials of what is delivered, as CycloneDX JSON.

It lists the Python packages that an installation draws in (of the environment that runs this, with
the extras that are named) and every jar that `ivy.xml` resolves to, with its SHA-256. What PySpark
brings in its own jars folder belongs to PySpark's wheel. The same inputs give the same bytes.

    python tools/sbom.py [--extra otel] [--output sbom.json]

The extra `server` is always among them.
"""

from __future__ import annotations

import argparse
import configparser
import hashlib
import re
import sys
import uuid
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree as ET

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

from streamydb import __version__
from streamydb.local import jars

__all__ = ["bill", "jar_components", "main", "python_components"]

ROOT = "streamydb"
TOP = Path(__file__).resolve().parent.parent
SETUPS = (TOP / "setup.cfg", TOP / "layers" / "setup.cfg")
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "streamydb")


def python_components(extras: Sequence[str] = ()) -> list[Component]:
    """The packages that an installation draws in, without ourselves, sorted by name."""
    found: dict[str, str] = {}
    waiting = _own_requirements(extras)
    while waiting:
        need = waiting.pop()
        known = re.sub(r"[-_.]+", "-", need.name).lower()
        if known not in found:
            found[known] = metadata.version(need.name)
            waiting += _needs(need)
    return [_python(name, version) for name, version in sorted(found.items())]


def _own_requirements(extras: Sequence[str]) -> list[Requirement]:
    """What both distributions ask for, without themselves."""
    wanted: list[str] = []
    for file in SETUPS:
        setup = configparser.ConfigParser()
        setup.read(file, "utf-8")
        offered = setup["options.extras_require"]
        wanted.append(setup["options"]["install_requires"])
        wanted += [offered[extra] for extra in ("server", *extras) if extra in offered]
    lines = (line.strip() for text in wanted for line in text.splitlines())
    needs = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return [need for need in needs if need.name != ROOT]


def _needs(package: Requirement) -> list[Requirement]:
    """What a package asks for here, with the extras that it was asked for with."""
    needs = [Requirement(text) for text in metadata.requires(package.name) or []]
    extras = ("", *package.extras)
    return [
        need
        for need in needs
        if need.marker is None or any(need.marker.evaluate({"extra": each}) for each in extras)
    ]


def _python(name: str, version: str) -> Component:
    url = PackageURL("pypi", None, name, version)
    return Component(
        name=name, version=version, type=ComponentType.LIBRARY, purl=url, bom_ref=str(url)
    )


def jar_components(cache: Path | None = None) -> list[Component]:
    """The jars of all configurations of `ivy.xml`, sorted; they are fetched when need be."""
    folder = cache or jars.cache_folder()
    found: dict[str, Component] = {}
    for conf in jars.CONFIGURATIONS:
        files = {file.name: file for file in jars.resolve(conf, folder)}
        report = next((folder / "ivy").rglob(f"streamydb-jars-{conf}.xml"))
        for group, name, version in _modules(report):
            file = files.pop(f"{name}-{version}.jar", None)
            if file is not None:
                made = _jar(group, name, version, file)
                found[str(made.bom_ref)] = made
        if files:
            raise SystemExit(f"{report} does not say where {', '.join(sorted(files))} come from")
    return [found[ref] for ref in sorted(found)]


def _modules(report: Path) -> Iterator[tuple[str, str, str]]:
    """Group, artifact and version of everything that Ivy has resolved, by its own report."""
    for module in ET.parse(report).iter("module"):  # noqa: S314 - Ivy wrote it on this machine
        for revision in module.iter("revision"):
            for artifact in revision.iter("artifact"):
                group, version = module.attrib["organisation"], revision.attrib["name"]
                yield group, artifact.attrib["name"], version


def _jar(group: str, name: str, version: str, file: Path) -> Component:
    url = PackageURL("maven", group, name, version)
    digest = HashType(alg=HashAlgorithm.SHA_256, content=_sha256(file))
    return Component(
        group=group, name=name, version=version, type=ComponentType.LIBRARY, purl=url,
        bom_ref=str(url), hashes=[digest],
    )  # fmt: skip


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def bill(extras: Sequence[str] = (), cache: Path | None = None) -> str:
    """The bill as JSON; no clock and no chance in it."""
    components = [*python_components(extras), *jar_components(cache)]
    made = Bom(components=components)
    root = Component(name=ROOT, version=__version__, type=ComponentType.APPLICATION, bom_ref=ROOT)
    made.metadata.component = root
    made.register_dependency(root, components)
    made.metadata.timestamp = None  # type: ignore[assignment]
    made.serial_number = uuid.uuid5(_NAMESPACE, "\n".join(str(c.bom_ref) for c in components))
    return JsonV1Dot6(made).output_as_string(indent=1) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the bill."""
    parser = argparse.ArgumentParser(prog="python tools/sbom.py", description=main.__doc__)
    parser.add_argument("--extra", action="append", default=[], help="an extra that is installed")
    parser.add_argument("--output", type=Path, default=Path("sbom.json"))
    given = parser.parse_args(arguments)
    text = bill(given.extra)
    given.output.write_text(text, "utf-8")
    sys.stdout.write(f"{given.output}: {text.count('bom-ref') - 1} components\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
