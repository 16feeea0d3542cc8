"""The TypeScript client in a browser: transactions, functions as transactions, changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.page import CHROMIUM, Site, open_browser
from tests.clients.toolchain import node_module, run

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium and chromium-driver")
]

PACKAGE = Path(__file__).resolve().parents[2] / "clients" / "typescript"
TOUR = """
    const [address, done] = arguments;
    (async () => {
        const { CheckFailedError, connect } = await import(address);
        const client = connect(location.origin);
        const watch = await client.watch("acct/").start();
        const first = await client.put("acct/1", 100);
        const [left, again] = await Promise.all([30, 20].map((by) => client.run(async (view) => {
            const balance = await view.get("acct/1");
            view.put("acct/1", balance - by);
            return balance - by;
        })));
        const stale = { key: "acct/1", version: first.seq };
        const refused = await client.transaction({ checks: [stale] }).catch((error) => error);
        const changes = [];
        for await (const change of watch) {
            if (changes.push(change.value) === 3) break;
        }
        const keys = [];
        for await (const entry of client.scan("acct/")) keys.push(entry.key);
        const nobody = connect("http://127.0.0.1:1", { timeoutS: 0.2 });
        const lost = await nobody.get("x").catch((error) => error);
        client.close();
        return {
            last: Math.min(left, again), refused: refused instanceof CheckFailedError,
            changes: changes.length, value: changes[2], keys, lost: lost.name,
        };
    })().then(done, (error) => done(String(error.stack)));
"""


class _Shared(SimpleHTTPRequestHandler):
    """Files that a page of another origin may load."""

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def files(folder: Path) -> Iterator[str]:
    """Serve a folder; where."""
    handler = partial(_Shared, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_the_client_works_in_a_page_of_the_facade(tmp_path: Path) -> None:
    run([node_module("tsc"), "-p", PACKAGE, "--outDir", tmp_path / "client"], PACKAGE)
    with Site() as site, files(tmp_path / "client") as client, open_browser(tmp_path / "p") as page:
        seen = page.run_elsewhere(site.address + "problems", TOUR, f"{client}/index.js")
    assert seen == {
        "last": 50, "refused": True, "changes": 3, "value": 50, "keys": ["acct/1"],
        "lost": "ConnectionLostError",
    }  # fmt: skip
