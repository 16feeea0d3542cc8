"""Stand-ins for the clients of Kafka in the example sinks: they read a topic from a file of JSON.

The file has, for each partition, where it ends, and its records: offset, timestamp, header, key,
and value (null: a tombstone). A program ends when it has read all of them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from streamydb.records.connect import connect_key

__all__ = ["EXAMPLES", "KEYS", "PYTHON", "SCRIPT", "Topic", "run_sink"]

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples" / "sinks"
KEYS: Final = [
    "__proto__", "constructor", "toString", "hasOwnProperty", "1", "02", "", "é", "e\u0301", "É",
    "a/b", '"', "\\", "\0", "a\0", "\U0001f600", "rows", "last",
]  # fmt: skip

PYTHON: Final = """
import json, os, sys
from collections import namedtuple
TopicPartition = namedtuple("TopicPartition", "topic partition")
Record = namedtuple("Record", "offset timestamp headers key value")

class KafkaConsumer:
    def __init__(self, **options):
        assert options["isolation_level"] == "read_committed"
        assert options["enable_auto_commit"] is False
        assert options["auto_offset_reset"] == "earliest"
        with open(os.environ["TOPIC"]) as file:
            self.topic = {int(n): part for n, part in json.load(file).items()}
        self.at = {}

    def partitions_for_topic(self, topic):
        return set(self.topic) or None

    def assign(self, parts):
        self.parts = list(parts)

    def end_offsets(self, parts):
        return {part: self.topic[part.partition]["end"] for part in parts}

    def seek(self, part, offset):
        self.at[part] = offset

    def seek_to_beginning(self):
        for part in self.parts:
            self.at[part] = 0

    def poll(self, timeout):
        found = {}
        for part in self.parts:
            if self.at[part] > self.topic[part.partition]["end"]:
                self.at[part] = 0
            known = self.topic[part.partition]["records"]
            rest = [each for each in known if each["offset"] >= self.at[part]][:2]
            if rest:
                self.at[part] = rest[-1]["offset"] + 1
                found[part] = [
                    Record(r["offset"], r["timestamp"], [("streamydb", r["mark"].encode())],
                           r["key"].encode(), r["value"] and r["value"].encode()) for r in rest]
        if not found:
            sys.exit(0)
        return found
"""

SCRIPT: Final = """
import { readFileSync } from "node:fs";
const topic = JSON.parse(readFileSync(process.env.TOPIC, "utf8"));
const at = new Map();
export class Kafka {
  admin() {
    return {
      connect() {}, disconnect() {},
      fetchTopicOffsets: async () => Object.entries(topic).map(([n, part]) =>
        ({ partition: Number(n), high: String(part.end) })),
    };
  }
  consumer() {
    return {
      connect() {}, subscribe() {},
      seek: ({ partition, offset }) => at.set(String(partition), Number(offset)),
      run: async ({ eachBatch }) => { setTimeout(() => read(eachBatch), 0); },
    };
  }
}
async function read(eachBatch) {
  for (let more = true; more;) {
    more = false;
    for (const [n, part] of Object.entries(topic)) {
      if (at.get(n) > part.end) at.set(n, 0);
      const rest = part.records.filter((each) => each.offset >= at.get(n)).slice(0, 2);
      if (!rest.length) continue;
      more = true;
      at.set(n, rest.at(-1).offset + 1);
      const messages = rest.map(({ offset, timestamp, mark, key, value }) => ({
        offset: String(offset), timestamp: String(timestamp), key: Buffer.from(key),
        headers: { streamydb: Buffer.from(mark) }, value: value && Buffer.from(value) }));
      await eachBatch({ batch: { partition: Number(n), messages }, heartbeat() {} });
    }
  }
  process.exit(0);
}
"""


class _Record(NamedTuple):
    offset: int
    timestamp: int
    mark: str
    key: str
    value: str | None


class Topic:
    """A compacted topic of two partitions, and the state that its records make.

    Args:
        rng: what is drawn.
        identity: of the changes that it is a copy of.
        now_ms: when its first record was appended.
    """

    def __init__(self, rng: random.Random, identity: str, now_ms: int) -> None:
        """Begin empty."""
        self._rng, self._identity, self._now_ms = rng, identity, now_ms
        self._records: dict[int, list[_Record]] = {0: [], 1: []}
        self._ends = {0: 0, 1: 0}
        self.state: dict[str, str] = {}

    def append(self, count: int) -> None:
        """Append changes of random keys; a deletion has a tombstone behind it."""
        for _ in range(count):
            name = self._rng.choice(KEYS)
            part = KEYS.index(name) % 2
            text = json.dumps([name, self._rng.randrange(1_000)])
            after = None if self._rng.random() < 0.3 else text
            row = {"key": name, "value": after, "version": 1}
            payload = {"payload": {"after": None if after is None else row}}
            self._put(part, name, json.dumps(payload))
            if after is None:
                self._put(part, name, None)
                self.state.pop(name, None)
            else:
                self.state[name] = text

    def compact(self) -> None:
        """Keep the last record of each key only: a tombstone stays for a week, and so here."""
        for part, records in self._records.items():
            newest = {record.key: record for record in records}
            self._records[part] = [each for each in records if newest[each.key] is each]

    def write(self, file: Path) -> None:
        """Write it where the stand-ins read it."""
        text = {
            part: {"end": self._ends[part], "records": [each._asdict() for each in records]}
            for part, records in self._records.items()
        }
        file.write_text(json.dumps(text))

    def _put(self, part: int, name: str, value: str | None) -> None:
        offset = self._ends[part] + (self._rng.random() < 0.3)  # the end of a transaction of Kafka
        self._ends[part] = offset + 1
        self._now_ms += self._rng.randrange(3)
        mark = f"{self._identity} {offset} {self._now_ms}"
        key = connect_key(name).decode()
        self._records[part].append(_Record(offset, self._now_ms, mark, key, value))


def run_sink(program: str, topic: Topic, folder: Path) -> Path:
    """Run an example on a topic; return the file that it keeps."""
    topic.write(folder / "topic.json")
    where: list[Any] = ["kafka:9092", "bank", folder / "bank"]
    if program.endswith(".py"):
        (folder / "kafka.py").write_text(PYTHON)
        command = [sys.executable, EXAMPLES / program, *where]
    else:
        package = folder / "node_modules" / "kafkajs"
        package.mkdir(parents=True, exist_ok=True)
        (package / "package.json").write_text('{"name": "kafkajs", "main": "index.mjs"}')
        (package / "index.mjs").write_text(SCRIPT)
        shutil.copy(EXAMPLES / program, folder)
        command = ["node", folder / program, *where]
    environment = {**os.environ, "TOPIC": str(folder / "topic.json"), "PYTHONPATH": str(folder)}
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    return folder / "bank"
