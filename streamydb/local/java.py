"""Finds the Java that runs Spark and the embedded broker, or says what to do."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamydb.errors import ConfigurationError

JAVA_VERSION_MIN = 17  # the oldest Java that Spark 4.2 and Kafka 4.1 run on

GIVES_BACK = ("-XX:+IgnoreUnrecognizedVMOptions", "-XX:TrimNativeHeapInterval=20000")
"""Options of a JVM: what native code has freed goes back to the system every so many milliseconds.

glibc keeps it otherwise, 30 to 50 MB of each JVM. Some Java 17 do not know the option yet.
"""

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', re.MULTILINE)
_HINT = (
    f"Install a JDK {JAVA_VERSION_MIN} or newer (Debian and Ubuntu: `apt-get install "
    "openjdk-17-jre-headless`; macOS: `brew install openjdk@17`) or point JAVA_HOME at one."
)


class JavaError(ConfigurationError):
    """Java is missing, broken or too old; the message names the place and the fix."""


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java: the path of its launcher and its major version."""

    path: Path
    version: int


def parse_version(output: str) -> int | None:
    """Return the major version that `java -version` printed, or None if it is not there.

    Both forms are understood: `17.0.15` is 17, the old `1.8.0_402` is 8.
    """
    match = _VERSION.search(output)
    return None if match is None else _major(match)


def _major(match: re.Match[str]) -> int:
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the Java of `JAVA_HOME`, or else the one on `PATH`.
    Raises JavaError: there is none, it does not start, or it is older than `JAVA_VERSION_MIN`.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME", "")
    if home:
        path = Path(home) / "bin" / "java"
        if not path.is_file():
            msg = f"JAVA_HOME is {home}, but {path} does not exist. {_HINT}"
            raise JavaError(msg)
        return _checked(path)
    launcher = shutil.which("java", path=environ.get("PATH"))
    if launcher is None:
        msg = f"No Java: JAVA_HOME is not set and there is no `java` on PATH. {_HINT}"
        raise JavaError(msg)
    return _checked(Path(launcher))


def java_home() -> str:
    """The folder that programs look for in JAVA_HOME. Raises JavaError: see `find_java`."""
    return str(find_java().path.resolve().parent.parent)


@functools.cache
def _checked(path: Path) -> Java:
    version = _of_release(path)
    if version is None:
        version = _asked(path)
    if version < JAVA_VERSION_MIN:
        msg = f"{path} is Java {version}; at least {JAVA_VERSION_MIN} is needed. {_HINT}"
        raise JavaError(msg)
    return Java(path, version)


def _of_release(path: Path) -> int | None:
    """Return the version that the file `release` of a Java tells, which spares starting it; None if
    there is none, or it does not say.
    """
    try:
        text = (path.resolve().parent.parent / "release").read_text("utf-8", "replace")
    except OSError:
        return None
    match = _RELEASE.search(text)
    return None if match is None else _major(match)


def _asked(path: Path) -> int:
    """Return the version that a Java says. Raises JavaError: it does not start, or says none."""
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"{path} does not start: {error}. {_HINT}"
        raise JavaError(msg) from error
    version = parse_version(done.stderr + done.stdout)
    if done.returncode != 0 or version is None:
        said = (done.stderr or done.stdout).strip()[:500] or "no output"
        msg = f"`{path} -version` failed (exit code {done.returncode}): {said}. {_HINT}"
        raise JavaError(msg)
    return version
