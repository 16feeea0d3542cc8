"""A client where nothing is installed but httpx and msgspec."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support.served import serving
from tools.requirements import requirements

ALLOWED = "streamydb httpx httpcore h11 anyio certifi idna sniffio msgspec typing_extensions"
ALONE = f"""
import sys

ALLOWED = {{*"{ALLOWED}".split(), *sys.stdlib_module_names}}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ALLOWED:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import streamydb
"""
USED = """
from streamydb.client import CheckFailedError

with streamydb.connect(sys.argv[1]) as client, client.watch("a/") as watch:
    client.put("a/1", 1)
    client.run(lambda view: view.put("n", view.get("a/1") + 1))
    try:
        client.atomic().check("a/1", version=9).delete("a/1").commit()
    except CheckFailedError as error:
        assert client.sql("values (1)").rows == ((1,),)
        print(error.failed[0].key, next(watch).value, [entry.value for entry in client.scan()])
"""


def alone(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ALONE + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_client_works_with_what_the_base_installation_brings() -> None:
    with serving() as served:
        done = alone(USED, served.url)
    assert done.stdout == "a/1 1 [1, 2]\n", done.stderr


def test_the_base_installation_brings_no_more() -> None:
    assert {re.split("[<>=]", line)[0] for line in requirements([])} == {"httpx", "msgspec"}


def test_what_needs_the_server_says_so() -> None:
    done = alone('streamydb.connect("kafka://127.0.0.1:1/bank?read_model=/nowhere")')
    assert "ConfigurationError: kafka:// needs the package" in done.stderr
    done = alone("import streamydb.cli")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "pip install '.[server]'" in done.stderr
