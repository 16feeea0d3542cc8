"""Questions to the past: what was there, why an order was refused, and what other rules had done.

    make up
    python examples/past.py [URL]

It asks the log itself, as `streamydb explain` and `streamydb whatif` do, so it needs Kafka and the
settings of the database. It prints:

    ann bought 2, bob 6, cyd 1; dan wanted 4: bound-violated
    before bob came there were 8 packets, behind him 2
    dan met 1 packet, which cyd had left
    had 3 packets been kept back: bob aborted, and 1 more verdict would differ
    the database is as it was: 1 packet
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from typing import Any

from common import clear, connect
from streamydb.client import BoundViolatedError, Client

TEA = "past/stock/tea"
ORDERS = {"ann": 2, "bob": 6, "cyd": 1, "dan": 4}
KEPT_BACK = {"name": "past-kept-back", "prefix": "past/stock/", "type": "integer", "min": 3}


def ask(command: str, *words: str) -> Any:
    """Run a command of streamydb with the settings of this program; return its answer."""
    line = [sys.executable, "-m", "streamydb.cli", command, *words, "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 3}:  # 3: something differs
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def sell(db: Client) -> tuple[dict[str, int], BoundViolatedError]:
    """Let all of them buy; return the seqs of their orders, and how the last one was refused."""
    db.put(TEA, 10)
    seqs: dict[str, int] = {}
    for name, wanted in ORDERS.items():
        try:
            seqs[name] = db.atomic(f"{name}-{uuid.uuid4()}").add(TEA, -wanted, min=0).commit().seq
        except BoundViolatedError as refused:
            return {**seqs, name: refused.seq}, refused
    raise AssertionError("there was enough for all")


def main() -> None:
    """Sell tea, then ask how it went."""
    with connect() as db:
        clear(db, "past/")
        seqs, refused = sell(db)
        print(f"ann bought 2, bob 6, cyd 1; dan wanted 4: {refused.code}")
        before, behind = (db.get(TEA, at=seq) for seq in (seqs["bob"] - 1, seqs["bob"]))
        print(f"before bob came there were {before} packets, behind him {behind}")

        [met] = ask("explain", str(refused.id))["met"]
        [whose] = [name for name, seq in seqs.items() if seq == met["version"]]
        print(f"dan met {met['value']} packet, which {whose} had left")

        stretch = ["--from-seq", str(seqs["ann"]), "--to-seq", str(seqs["dan"])]
        other = ask("whatif", "--constraint", json.dumps(KEPT_BACK), *stretch)
        verdicts = other["kinds"]["verdict"]
        first, more = verdicts["first"], verdicts["count"] - 1
        who, after = first["id"].partition("-")[0], json.loads(first["after"])["status"]
        print(f"had 3 packets been kept back: {who} {after}, and {more} more verdict would differ")
        print(f"the database is as it was: {db.get(TEA)} packet")


if __name__ == "__main__":
    main()
