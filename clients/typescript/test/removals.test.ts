/** Keys that end at one seq may share the number of their removal: a watch tells them apart by key. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { connect } from "../src/index.js";

const SHARED = 2655910280946419;
const KEYS = ["s/68816870", "s/107919992", "zebra", "a"];

/** An event of the removal of a key; the last one of its seq has the id. */
function removal(key: string, seq: number, last: boolean): string {
  const transaction = { id: "$expiry", total_order: SHARED, data_collection_order: SHARED };
  const change = { key, op: "d", before: 1, after: null, ts_ms: 1, source: { seq }, transaction };
  return `event: change\n${last ? `id: ${seq}\n` : ""}data: ${JSON.stringify(change)}\n\n`;
}

test("a watch gives each removal once, wherever its streams are cut", async () => {
  for (const cut of [0, 1, 2, 3, 4]) {
    let opened = 0;
    const client = connect("http://127.0.0.1:9", {
      surroundings: { sleep: async () => undefined },
      fetch: async () => {
        const all = [1, 2].flatMap((seq) => KEYS.map((key, i) => removal(key, seq, i === KEYS.length - 1)));
        const given = opened++ === 0 ? all.slice(0, cut) : all;
        const body = new ReadableStream({
          start(stream) {
            stream.enqueue(new TextEncoder().encode(given.join("")));
            if (opened === 1) stream.close();
          },
        });
        return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
      },
    });
    const told: string[] = [];
    const watch = client.watch("", { since: 0 });
    while (told.length < 2 * KEYS.length) told.push((await watch.next()).value!.key);
    assert.deepEqual(told, [...KEYS, ...KEYS], `cut after ${cut}`);
    client.close();
  }
});
