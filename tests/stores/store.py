"""An object store on this machine (moto's S3), and a database whose checkpoint lies there."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from streamydb.local.broker import free_port
from streamydb.local.folder import DatabaseFolder
from streamydb.local.jars import class_path, resolve
from streamydb.testing.database import Database, wait_for
from tests.clients.toolchain import fetched, maven_jars

HERE: Final = Path(__file__).parent
BUCKET: Final = "bank"
PATIENCE_S: Final = 600.0


@contextmanager
def object_store(folder: Path) -> Iterator[str]:
    """Serve an empty bucket; gives the address of the store."""
    made = f"{sys.executable} -m venv venv && venv/bin/pip install -q -r requirements.txt"
    moto = fetched(HERE / "requirements.txt", ["sh", "-c", made]) / "venv" / "bin" / "moto_server"
    port = free_port()
    with (folder / "store.log").open("wb") as said:
        server = subprocess.Popen(
            [moto, "-H", "127.0.0.1", "-p", str(port)], stdout=said, stderr=subprocess.STDOUT
        )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(lambda: _answers(f"{address}/{BUCKET}", "PUT"), "the bucket", PATIENCE_S)
            yield address
        finally:
            server.kill()
            server.wait()


def _answers(url: str, method: str) -> bool:
    try:
        request = urllib.request.Request(url, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=60):  # noqa: S310
            return True
    except (urllib.error.URLError, OSError):
        return False


class StoreDatabase(Database):
    """A database whose pipeline keeps its checkpoint in the store."""

    store = ""

    def twin(self) -> StoreDatabase:
        """Another pipeline on the same checkpoint, as on another machine; it is not started."""
        other = StoreDatabase(self.folder, shards=self.shards, master=self.master)
        other.store, other.broker = self.store, self.broker
        other.place = DatabaseFolder(self.folder / "twin", self.name)
        other.log_file = self.folder / "twin.log"
        return other

    def command(self, extra: Iterable[str] = ()) -> list[str]:
        """The pipeline's command line, with the store's jars and address."""
        jars = [*resolve("pipeline"), *sorted(maven_jars(HERE).glob("*.jar"))]
        s3a = "spark.hadoop.fs.s3a"
        settings = {
            "spark.driver.extraClassPath": class_path(jars),
            f"{s3a}.endpoint": self.store,
            f"{s3a}.endpoint.region": "us-east-1",
            f"{s3a}.path.style.access": "true",
            f"{s3a}.access.key": "any",
            f"{s3a}.secret.key": "any",
            # The SDK's asynchronous client takes moto's `100 Continue` for the answer to an upload.
            f"{s3a}.optimized.copy.from.local.enabled": "false",
        }
        command = super().command(extra)
        command[command.index("--checkpoint") + 1] = f"s3a://{BUCKET}/checkpoint"
        command[command.index("--local") + 1] = str(self.place.folder / "local")
        pairs = [word for each in settings.items() for word in ("--conf", "=".join(each))]
        return [*command, *pairs]

    def start_pipeline(self, extra: Iterable[str] = ()) -> None:
        """Start it, and wait longer than a lease takes to expire."""
        self.launch_pipeline(extra)
        wait_for(lambda: self.status().state == "running", "the start", PATIENCE_S)
