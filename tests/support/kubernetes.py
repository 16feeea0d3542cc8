"""The part of Kubernetes' API that Spark's driver uses; a pod is a process on this machine.

Of a container its command and environment are imitated; and where the machine lets us, a pod sees
nothing of the driver's folders but the volume that both mount.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil

__all__ = ["Pods", "serving_pods"]

_OBJECT = re.compile(r"/api/v1/namespaces/[^/]+/(?P<kind>\w+)(/(?P<name>[^/]+))?")
_VERBS = {
    "GET": ("get", "list"),
    "POST": ("create", "create"),
    "PATCH": ("patch", "patch"),
    "PUT": ("update", "update"),
    "DELETE": ("delete", "deletecollection"),
}
_RUNNING, _ENDED = "Running", "Failed"
_ALONE = """
mount --bind "$2" /mnt
mount -t tmpfs tmpfs "$1"
mkdir -p "$2" "$3"
mount --bind /mnt "$2"
cd "$3"
shift 3
exec "$@"
"""
"""Hide a folder but for the volume in it, have a folder of its own there, and run the rest."""


class Pods:
    """The objects that were created, and the processes of the pods among them.

    Attributes:
        created: every pod ever created, as it was asked for.
        asked: verb and kind of each request, as a role names them.
        alone: whether pods see nothing of the driver's folders but the volume.
    """

    def __init__(self, folder: Path, volume: Path, environment: Mapping[str, str]) -> None:
        """Run pods under ``folder``, of which they see ``volume``,
        with their image's environment.
        """
        self._folder, self._volume = folder, volume
        self.alone = subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0
        self._environment = environment
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._processes: dict[str, psutil.Popen] = {}
        self._addresses: dict[str, str] = {}
        self._lock = threading.Lock()
        self.created: list[dict[str, Any]] = []
        self.asked: set[tuple[str, str]] = set()

    def answer(self, method: str, url: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Answer a request: its status and its body."""
        parts = urlsplit(url)
        found = _OBJECT.fullmatch(parts.path)
        labels = parse_qs(parts.query).get("labelSelector", [""])[0]
        with self._lock:
            if found is None:
                self.asked.add((method, parts.path))
                return 404, _status(404)
            kind, name = found["kind"], found["name"]
            one, many = _VERBS[method]
            self.asked.add((many if name is None else one, kind))
            if method == "POST":
                return 201, self._create(kind, json.loads(body))
            if method == "GET" and name is None:
                return 200, {"kind": "List", "apiVersion": "v1", "metadata": {
                    "resourceVersion": "1"}, "items": self._list(kind, labels)}  # fmt: skip
            if method == "DELETE" and name is None:
                for each in self._list(kind, labels):
                    self._delete(kind, each["metadata"]["name"])
                return 200, _status(200)
            if (kind, name) not in self._objects:
                return 404, _status(404)
            if method == "DELETE":
                self._delete(kind, name)
                return 200, _status(200)
            return 200, self._shown(kind, name)

    def executors(self) -> dict[str, psutil.Popen]:
        """The processes that run, by the names of their pods."""
        with self._lock:
            return {n: each for n, each in self._processes.items() if each.poll() is None}

    def close(self) -> None:
        """End all processes."""
        for each in self._processes.values():
            _end(each)

    def _create(self, kind: str, wanted: dict[str, Any]) -> dict[str, Any]:
        name = wanted["metadata"]["name"]
        wanted["metadata"] |= {"uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
        self._objects[kind, name] = wanted
        if kind == "pods":
            self.created.append(wanted)
            self._processes[name] = self._run(name, wanted["spec"]["containers"][0])
        return self._shown(kind, name)

    def _run(self, name: str, container: dict[str, Any]) -> psutil.Popen:
        folder = self._folder / "pods" / name
        folder.mkdir(parents=True)
        self._volume.mkdir(parents=True, exist_ok=True)
        self._addresses[name] = address = f"127.0.0.{len(self._addresses) + 2}"
        known = {"status.podIP": address, "metadata.name": name}
        environment = {**self._environment, "HOME": str(folder), "TMPDIR": str(folder)}
        for each in container.get("env", ()):
            source = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            environment[each["name"]] = each.get("value", "") if source is None else known[source]
        environment["SPARK_LOCAL_DIRS"] = str(folder)
        command = [*container["command"], *container.get("args", ())]
        if self.alone:
            places = [str(each) for each in (self._folder, self._volume, folder)]
            command = ["unshare", "-m", "bash", "-ec", _ALONE, "pod", *places, *command]
        with (folder / "log").open("wb") as log:
            return psutil.Popen(
                command,
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _list(self, kind: str, labels: str) -> list[dict[str, Any]]:
        terms = [each.partition("=") for each in labels.split(",") if "!=" not in each]
        wanted = {name: value for name, equals, value in terms if equals}
        names = [name for known, name in self._objects if known == kind]
        found = [self._shown(kind, name) for name in names]
        return [
            each for each in found if wanted.items() <= each["metadata"].get("labels", {}).items()
        ]

    def _delete(self, kind: str, name: str) -> None:
        del self._objects[kind, name]
        if kind == "pods" and name in self._processes:
            _end(self._processes.pop(name))

    def _shown(self, kind: str, name: str) -> dict[str, Any]:
        found = self._objects[kind, name]
        if kind != "pods":
            return found
        runs = self._processes[name].poll() is None
        status = {"phase": _RUNNING if runs else _ENDED, "podIP": self._addresses[name]}
        return {**found, "kind": "Pod", "apiVersion": "v1", "status": status}


def _end(process: psutil.Popen) -> None:
    if process.poll() is None:
        for each in [*process.children(recursive=True), process]:
            each.kill()
        process.wait(30)


def _status(code: int) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "code": code,
            "status": "Success" if code == 200 else "Failure"}  # fmt: skip


@contextmanager
def serving_pods(
    folder: Path, volume: Path, environment: Mapping[str, str]
) -> Iterator[tuple[str, Pods]]:
    """Serve on a free port; its URL, and what is asked for."""
    pods = Pods(folder, volume, environment)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            code, found = pods.answer(self.command, self.path, self.rfile.read(length))
            body = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", pods
    finally:
        server.shutdown()
        server.server_close()
        pods.close()
