"""Fetches the jars of `ivy.xml` into the user's cache, with the Ivy that comes inside PySpark.

The first call for a configuration downloads; later ones only look at the stamp that the first one
left, so they are instant and need no network. A stamp belongs to the manifest's hash: a changed
manifest is resolved again, beside the old jars.

    python -m streamydb.local.jars [--cache FOLDER] [--class-path] [pipeline] [broker]
    python -m streamydb.local.jars --packages
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from streamydb.errors import ConfigurationError
from streamydb.local.file_lock import file_lock
from streamydb.local.java import JavaError, find_java
from streamydb.local.resources import shipped_file

_FOUND = re.compile(r"^\s*found (\S+) in ")
_DOWNLOADING = re.compile(r"^downloading \S*/(\S+?\.jar)")
_DOWNLOADED = re.compile(r"^\s*\[SUCCESSFUL \] \S+!(\S+?)(?:\(\w+\))? ")
_PROBLEM = re.compile(
    r"unresolved dependenc|not found|download failed|FAILED|UNRESOLVED"
    r"|Server access error|Host .* not found|timed out|refused|Exception",
    re.IGNORECASE,
)
_CAUSE = re.compile(r"Server access error|Exception|timed out")
_PROBLEM_LINES_MAX = 12


def parse_line(line: str) -> tuple[str, str] | None:
    """Read a line of Ivy's output: (stage or "downloaded", name), or None without progress."""
    if match := _FOUND.match(line):
        return "resolving", match[1]
    if match := _DOWNLOADING.match(line):
        return "downloading", match[1]
    if match := _DOWNLOADED.match(line):
        return "downloaded", match[1]
    return None


def failure(conf: str, tail: Iterable[str], code: int) -> str:
    """Say why Ivy failed, from the end of its output, and what to do about it."""
    lines = list(dict.fromkeys(line.strip() for line in tail if line.strip()))
    problems = [line for line in lines if _PROBLEM.search(line)] or lines
    problems.sort(key=lambda line: _CAUSE.search(line) is None)
    problem_lines = "\n".join(f"  {line}" for line in problems[:_PROBLEM_LINES_MAX])
    return (
        f"Could not fetch the jars of {conf!r} (Ivy ended with exit code {code}). It said:\n"
        f"{problem_lines}\n"
        "Is the Maven registry within reach? Behind a proxy set HTTPS_PROXY. For a mirror write\n"
        "an ivysettings.xml that names it and set STREAMYDB_IVY_SETTINGS to its path. A cache\n"
        "that was filled on another machine works as well: copy it and set STREAMYDB_CACHE to it."
    )


CONFIGURATIONS = ("pipeline", "broker")
"""The configurations of the manifest: Spark's additions, and the embedded Kafka broker."""

_STAMP = "resolved.json"
_TAIL_LINES = 400
_NOTHING_MORE = ("-Divy.maven.lookup.sources=false", "-Divy.maven.lookup.javadoc=false")
"""Ivy else asks for the sources and the documentation of every module: a fifth of the time."""

_SOON_DONE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Ivy's JVM takes half of the processor time with Java's first compiler alone."""


class JarsError(ConfigurationError):
    """The jars could not be fetched; the message says what failed, where, and what to do next."""


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """The progress of a resolution.

    Attributes:
        conf: the configuration under way.
        stage: "resolving" (reading the registry's metadata), "downloading" or "done".
        artifacts: the number of modules found, jars downloaded or jars in place, by stage.
        name: the module or jar last seen.
    """

    conf: str
    stage: str
    artifacts: int
    name: str


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the user cache: `$STREAMYDB_CACHE`, or `~/.cache/streamydb`."""
    environ = os.environ if environ is None else environ
    own = environ.get("STREAMYDB_CACHE")
    return Path(own).expanduser() if own else Path.home() / ".cache" / "streamydb"


def cached(conf: str, cache: Path | None = None, manifest: Path | None = None) -> list[Path] | None:
    """Return the jars of `conf` if the cache has them all, None if they have to be fetched."""
    folder = _folder(conf, cache or cache_folder(), manifest or shipped_file("ivy.xml"))
    try:
        sizes: dict[str, int] = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
        complete = all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return None
    return [folder / name for name in sorted(sizes)] if complete and sizes else None


def resolve(
    conf: str,
    cache: Path | None = None,
    progress: Callable[[FetchProgress], None] | None = None,
    *,
    manifest: Path | None = None,
) -> list[Path]:
    """Return the jars of a configuration, sorted by name, fetching them first when need be.

    Any number of processes may call this at once: one fetches, the others wait for it.

    Args:
        conf: "pipeline" or "broker".
        cache: the cache folder; `cache_folder()` when None.
        progress: called for every module found and every jar downloaded.
        manifest: another `ivy.xml`, for tests.

    Raises:
        JarsError: the registry is out of reach, an artifact is missing, or Ivy is.
        JavaError: no usable Java.
        ValueError: there is no such configuration.
    """
    if conf not in CONFIGURATIONS:
        msg = f"no configuration {conf!r} in ivy.xml; there are {', '.join(CONFIGURATIONS)}"
        raise ValueError(msg)
    cache = cache or cache_folder()
    manifest = manifest or shipped_file("ivy.xml")
    if (jars := cached(conf, cache, manifest)) is not None:
        return jars
    try:
        with file_lock(cache / f"{conf}.lock"):
            if (jars := cached(conf, cache, manifest)) is None:
                jars = _fetch(conf, cache, manifest, progress or (lambda _: None))
    except OSError as error:
        msg = (
            f"Could not write the jar cache {cache}: {error}. Free some space (about 200 MB are "
            "needed), or name a writable folder in STREAMYDB_CACHE."
        )
        raise JarsError(msg) from error
    return jars


def class_path(jars: Iterable[Path]) -> str:
    """Join jars to a JVM class path."""
    return os.pathsep.join(str(jar) for jar in jars)


def coordinates(conf: str) -> list[str]:
    """List what a configuration asks for as `group:artifact:version`, as `--packages` wants it."""
    text = shipped_file("ivy.xml").read_text(encoding="utf-8")
    asked = ET.fromstring(text).iter("dependency")  # noqa: S314 - our own file
    return [
        f"{one.get('org')}:{one.get('name')}:{one.get('rev')}"
        for one in asked
        if str(one.get("conf")).partition("->")[0] == conf
    ]


def _folder(conf: str, cache: Path, manifest: Path) -> Path:
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()[:16]
    return cache / "jars" / f"{conf}-{digest}"


def _fetch(
    conf: str, cache: Path, manifest: Path, progress: Callable[[FetchProgress], None]
) -> list[Path]:
    target = _folder(conf, cache, manifest)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{conf}-", dir=target.parent) as scratch:
        fresh = Path(scratch) / "jars"
        fresh.mkdir()
        _run_ivy(_command(conf, cache, manifest, fresh), conf, progress)
        sizes = {jar.name: jar.stat().st_size for jar in fresh.glob("*.jar")}
        if not sizes:
            msg = f"Ivy reported success but fetched no jar for {conf!r} of {manifest}."
            raise JarsError(msg)
        (fresh / _STAMP).write_text(json.dumps(sizes, indent=1, sort_keys=True), encoding="utf-8")
        if target.exists():
            shutil.rmtree(target)
        fresh.rename(target)
    progress(FetchProgress(conf, "done", len(sizes), ""))
    return [target / name for name in sorted(sizes)]


def _command(conf: str, cache: Path, manifest: Path, into: Path) -> list[str]:
    own = cache / "ivy" / conf  # of each configuration, since they may be fetched at the same time
    command = [str(find_java().path), *_SOON_DONE, *_NOTHING_MORE, *_proxy_options(os.environ)]
    command += [f"-Divy.default.ivy.user.dir={own}", "-jar", str(_ivy_jar())]
    if settings := os.environ.get("STREAMYDB_IVY_SETTINGS"):
        if not Path(settings).is_file():
            msg = f"STREAMYDB_IVY_SETTINGS is {settings}, which is not a file. Correct or unset it."
            raise JarsError(msg)
        command += ["-settings", settings]
    command += ["-ivy", str(manifest), "-confs", conf, "-cache", str(own / "cache")]
    return [*command, "-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"]


def spark_jars(pattern: str = "*.jar") -> list[Path]:
    """Return the jars inside PySpark whose names fit a pattern, sorted; none without PySpark."""
    return sorted(jar for place in _pyspark() for jar in (Path(place) / "jars").glob(pattern))


def _pyspark() -> list[str]:
    """The folders of the package, which is not imported for that."""
    spec = find_spec("pyspark")
    return list(spec.submodule_search_locations or []) if spec else []


def _ivy_jar() -> Path:
    ivy_jars = spark_jars("ivy-*.jar")
    if not ivy_jars:
        where = ", ".join(_pyspark()) or "this Python"
        msg = f"No ivy-*.jar in the jars folder of PySpark ({where}). Install `pyspark` again."
        raise JarsError(msg)
    return ivy_jars[-1]


def _proxy_options(environ: Mapping[str, str]) -> list[str]:
    """Translate the proxy variables that curl and pip heed into Java's properties."""
    options: list[str] = []
    for scheme in ("http", "https"):
        value = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
        if not value:
            continue
        parts = urlsplit(value if "//" in value else f"//{value}")
        if parts.hostname:
            options.append(f"-D{scheme}.proxyHost={parts.hostname}")
            options.append(f"-D{scheme}.proxyPort={parts.port or 80}")
    exempt = environ.get("no_proxy") or environ.get("NO_PROXY")
    if options and exempt:
        hosts = (host.strip() for host in exempt.split(","))
        wild = "|".join(f"*{host}" if host.startswith(".") else host for host in hosts if host)
        options.append(f"-Dhttp.nonProxyHosts={wild}")
    return options


def _run_ivy(command: Sequence[str], conf: str, progress: Callable[[FetchProgress], None]) -> None:
    counts = {"resolving": 0, "downloaded": 0}
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ivy:
        for line in ivy.stdout or ():
            tail.append(line.rstrip())
            if (seen := parse_line(line)) is None:
                continue
            stage, name = seen
            if stage in counts:
                counts[stage] += 1
            if stage == "resolving":
                progress(FetchProgress(conf, stage, counts[stage], name))
            else:
                progress(FetchProgress(conf, "downloading", counts["downloaded"], name))
    if ivy.returncode != 0:
        raise JarsError(failure(conf, tail, ivy.returncode))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch the jars of the named configurations (all by default), showing progress; 0 = done."""
    # Not typer: whatever starts a JVM imports this module, and typer takes 70 ms.
    parser = argparse.ArgumentParser("python -m streamydb.local.jars", description=main.__doc__)
    parser.add_argument("confs", nargs="*", metavar="conf", help=f"of {', '.join(CONFIGURATIONS)}")
    parser.add_argument("--cache", type=Path, help="the cache folder")
    parser.add_argument(
        "--class-path", action="store_true", help="print nothing but the jars, as a class path"
    )
    parser.add_argument(
        "--packages", action="store_true", help="print the pipeline's jars for Spark's --packages"
    )
    options = parser.parse_args(arguments)
    if options.packages:
        sys.stdout.write(f"{','.join(coordinates('pipeline'))}\n")
        return 0
    quiet: bool = options.class_path
    show = None if quiet else _print_progress
    confs = options.confs or CONFIGURATIONS
    try:
        with ThreadPoolExecutor(len(confs)) as pool:
            fetches = [pool.submit(resolve, conf, options.cache, show) for conf in confs]
        for conf, fetch in zip(confs, fetches, strict=True):
            jars = fetch.result()
            line = class_path(jars) if quiet else f"{conf}: {len(jars)} jars in {jars[0].parent}"
            sys.stdout.write(f"{line}\n")
    except (JarsError, JavaError, ValueError) as error:
        sys.stderr.write(f"\n{error}\n")
        return 1
    return 0


def _print_progress(step: FetchProgress) -> None:
    if sys.stdout.isatty():
        end = "\n" if step.stage == "done" else ""
        sys.stdout.write(f"\r\x1b[K{step.conf}: {step.stage} {step.artifacts} {step.name}{end}")
    elif step.stage == "done" or step.artifacts % 10 == 1:
        sys.stdout.write(f"{step.conf}: {step.stage} {step.artifacts} {step.name}\n")
    sys.stdout.flush()


_LEFT_OUT: Final = (
    "hive-[!s]*.jar", "hive-se*.jar", "hive-sh*.jar", "spark-hive*.jar", "datanucleus-*.jar",
    "derby*.jar", "jdo-api-*.jar", "javax.jdo-*.jar", "jta-*.jar", "transaction-api-*.jar",
    "libfb303-*.jar", "libthrift-*.jar", "HikariCP-*.jar", "commons-dbcp-*.jar", "jpam-*.jar",
    "spark-kubernetes_*.jar", "kubernetes-*.jar", "volcano-*.jar", "vertx-*.jar",
    "zjsonpatch-*.jar", "spark-yarn_*.jar", "curator-*.jar", "zookeeper-*.jar",
    "spark-mllib*.jar", "spark-graphx_*.jar", "breeze*.jar", "spire*.jar", "cats-kernel_*.jar",
    "algebra_*.jar", "arpack*.jar", "lapack-*.jar", "blas-*.jar", "JTransforms-*.jar",
    "JLargeArrays-*.jar",
    "spark-connect_*.jar", "spark-pipelines_*.jar", "spark-repl_*.jar", "scala-compiler-*.jar",
    "jline-*.jar", "java-diff-utils-*.jar",
)  # fmt: skip
"""Jars of Spark that no pipeline on one machine needs: Hive's, those of the managers of a cluster,
of machine learning, and of Spark's shells and servers. Java keeps the directory of each jar of its
class path in its heap.
"""

_PROGRAMS: Final = "bin"
_JARS: Final = "jars"


def needed_jars(shipped: Iterable[Path]) -> list[Path]:
    """Return those of Spark's jars that a pipeline on one machine needs, in the given order."""
    return [jar for jar in shipped if not any(fnmatchcase(jar.name, each) for each in _LEFT_OUT)]


def spark_home(package: Path, cache: Path | None = None) -> Path:
    """Return a folder with Spark's programs and those of its jars that a pipeline on one machine
    needs, made if it is missing; the package itself if it cannot be made.

    ``cache``: where to make it; by default the user's cache.
    """
    jars = needed_jars(sorted((package / _JARS).glob("*.jar")))
    digest = hashlib.sha256("\n".join(str(jar) for jar in jars).encode()).hexdigest()[:16]
    home = (cache or cache_folder()) / f"spark-home-{digest}"
    try:
        _make(home, package, jars)
    except OSError:
        return package
    return home


def _make(home: Path, package: Path, jars: Iterable[Path]) -> None:
    """Make the folder whole, whoever else makes it at the same time."""
    if home.is_dir():
        return
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".spark-home-", dir=home.parent) as scratch:
        new_home = Path(scratch) / "home"
        (new_home / _JARS).mkdir(parents=True)
        (new_home / _PROGRAMS).symlink_to(package / _PROGRAMS, target_is_directory=True)
        for jar in jars:
            (new_home / _JARS / jar.name).symlink_to(jar)
        with suppress(OSError):  # another process was faster
            new_home.rename(home)
    if not home.is_dir():
        raise FileNotFoundError(home)


if __name__ == "__main__":
    raise SystemExit(main())
