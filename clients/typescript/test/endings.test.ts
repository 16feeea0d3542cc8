/** How watches and pauses end: closed, broken off, given up; and what they leave behind. */

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { type Client, ClosedError, connect, OutcomeUnknownError, RequestError, type View } from "../src/index.js";

const URL_OF_NONE = "http://127.0.0.1:9";
const IN_TIME = { timeout: 20_000 };

/** A client whose facade has no time for an hour, and a promise of its first pause. */
function busy(): { client: Client; paused: Promise<void> } {
  const { promise: paused, resolve } = resolvable();
  const client = connect(URL_OF_NONE, {
    timeoutS: 10_000,
    reconnectS: 10_000,
    fetch: async () => new Response("", { status: 503, headers: { "Retry-After": "3600" } }),
    surroundings: {
      sleep: (seconds, signal) =>
        new Promise((awake, failed) => {
          signal?.throwIfAborted();
          const timer = setTimeout(awake, seconds * 1_000);
          const ended = () => {
            clearTimeout(timer);
            failed(signal?.reason);
          };
          signal?.addEventListener("abort", ended, { once: true });
          resolve();
        }),
    },
  });
  return { client, paused };
}

function resolvable(): { promise: Promise<void>; resolve: () => void } {
  let resolve: () => void = () => undefined;
  const promise = new Promise<void>((done) => (resolve = done));
  return { promise, resolve };
}

/** A client whose streams of changes have one change each, and then stay open. */
function streaming(): Client {
  return connect(URL_OF_NONE, {
    fetch: async (_, init) => {
      const after = Number(new Headers(init?.headers).get("Last-Event-ID")) + 1;
      const change = { key: "a", op: "c", after: 1, ts_ms: 1, source: { seq: after }, transaction: { total_order: 1, id: "t" } };
      const body = new ReadableStream({
        start(stream) {
          stream.enqueue(new TextEncoder().encode(`event: change\nid: ${after}\ndata: ${JSON.stringify(change)}\n\n`));
          init?.signal?.addEventListener("abort", () => stream.error(init.signal?.reason));
        },
      });
      return new Response(body);
    },
  });
}

const calls: Record<string, [(client: Client) => Promise<unknown>, new (...given: never[]) => Error]> = {
  "a watch": [(client) => client.watch("", { since: 0 }).next(), ClosedError],
  "the start of a watch": [(client) => client.watch().start(), ClosedError],
  "a read": [(client) => client.get("a"), ClosedError],
  "a transaction that may be in the log": [(client) => client.put("a", 1), OutcomeUnknownError],
  "a function": [(client) => client.run((view: View) => view.get("a")), ClosedError],
  "SQL": [(client) => client.sql("select 1"), ClosedError],
};
for (const [name, [call, expected]] of Object.entries(calls)) {
  test(`${name} that pauses ends when the client is closed`, IN_TIME, async () => {
    const { client, paused } = busy();
    const ended = assert.rejects(call(client), expected);
    await paused;
    client.close();
    await ended;
  });
}

test("a function is not called again when the client is closed meanwhile", IN_TIME, async () => {
  let called = 0;
  const client = connect(URL_OF_NONE, {
    fetch: async () => {
      const problem = { type: "/problems/snapshot-gone", status: 410, detail: "-" };
      return new Response(JSON.stringify(problem), { status: 410, headers: { "Content-Type": "application/problem+json" } });
    },
    surroundings: { sleep: async () => client.close() },
  });
  const function_ = (view: View) => {
    called += 1;
    return view.get("a");
  };
  await assert.rejects(client.run(function_), ClosedError);
  assert.equal(called, 1);
});

test("a watch that pauses ends when it is closed", IN_TIME, async () => {
  const { client, paused } = busy();
  const watch = client.watch("", { since: 0 });
  const next = watch.next();
  await paused;
  await watch.close();
  assert.deepEqual(await next, { done: true, value: undefined });
});

test("a closed watch cannot be started", IN_TIME, async () => {
  const client = streaming();
  for (const options of [{}, { since: 0 }]) {
    const watch = client.watch("", options);
    await watch.close();
    await assert.rejects(watch.start(), ClosedError);
    assert.deepEqual(await watch.next(), { done: true, value: undefined });
  }
  const begun = await client.watch("", { since: 0 }).start();
  await begun.close();
  await assert.rejects(begun.start(), ClosedError);
});

test("a watch whose start failed may be started again", IN_TIME, async () => {
  let fails = true;
  const client = connect(URL_OF_NONE, {
    fetch: async () => {
      const problem = { type: "/problems/forbidden", status: 403, detail: "-" };
      if (!fails) return new Response(JSON.stringify({ seq: 7, entries: {} }));
      return new Response(JSON.stringify(problem), { status: 403, headers: { "Content-Type": "application/problem+json" } });
    },
  });
  const watch = client.watch();
  await assert.rejects(watch.start(), RequestError);
  await assert.rejects(watch.next(), RequestError);
  fails = false;
  assert.equal((await watch.start()).seq, 7);
});

test("a watch leaves nothing at the signal when it has ended", IN_TIME, async () => {
  const client = streaming();
  const stop = new AbortController();
  const { signal } = stop;
  const left = () => getEventListeners(signal, "abort").length;

  client.watch("", { since: 0, signal });
  assert.equal(left(), 0, "it was never asked for anything");

  const closed = client.watch("", { since: 0, signal });
  await closed.next();
  assert.ok(left());
  await closed.close();
  assert.equal(left(), 0, "closed");
  assert.deepEqual(await closed.next(), { done: true, value: undefined });
  assert.equal(left(), 0, "asked again");

  for await (const change of client.watch("", { since: 0, signal })) {
    assert.equal(change.seq, 1);
    break;
  }
  assert.equal(left(), 0, "broken off");

  const failing = connect(URL_OF_NONE, { fetch: async () => new Response("", { status: 404 }) });
  await assert.rejects(failing.watch("", { since: 0, signal }).next());
  assert.equal(left(), 0, "failed");
  await assert.rejects(failing.watch("", { signal }).start());
  assert.equal(left(), 0, "not started");

  const ended = client.watch("", { since: 0, signal });
  await ended.next();
  stop.abort(new Error("enough"));
  await assert.rejects(ended.next(), /enough/);
  assert.equal(left(), 0, "given up");
});

test("a stream that nobody reads ends with the watch's signal, and with the client", IN_TIME, async () => {
  for (const by of ["signal", "client"]) {
    const before = process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
    const client = streaming();
    const stop = new AbortController();
    await client.watch("", { since: 0, signal: stop.signal }).next();
    if (by === "signal") stop.abort();
    else client.close();
    const after = process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
    assert.equal(after, before, by);
  }
});
