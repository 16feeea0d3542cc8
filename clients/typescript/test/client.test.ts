import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import {
  AbortedError,
  CheckFailedError,
  type Client,
  ClosedError,
  ConflictError,
  ConstraintViolatedError,
  connect,
  OutcomeUnknownError,
  RequestError,
  UnsafeScanError,
  type View,
  type WatchOptions,
} from "../src/index.js";
import { type Facade, serve } from "./facade.js";

let facade: Facade;
let client: Client;
let sent: string[] = [];

const counted: typeof fetch = (input, init) => {
  const after = new Headers(init?.headers).get("Last-Event-ID");
  sent.push(`${init?.method} ${new URL(String(input)).pathname}${after === null ? "" : ` after ${after}`}`);
  return fetch(input, init);
};

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

before(async () => {
  facade = await serve();
  client = connect(facade.url, { pageEntries: 2, readKeys: 2, fetch: counted });
});
after(async () => {
  client.close();
  await facade.end();
});
beforeEach(() => {
  sent = [];
});

test("values, versions, ranges", async () => {
  const key = "kv/a b/ä%2F😀";
  const made = await client.put(key, { owner: "ann", balance: [1, null] });
  assert.deepEqual(await client.get(key), { owner: "ann", balance: [1, null] });
  assert.equal((await client.entry(key)).version, made.seq);
  assert.equal(await client.get("kv/nothing"), undefined);
  assert.deepEqual(await client.entry("kv/nothing"), { key: "kv/nothing", value: undefined, version: 0, tsMs: 0 });
  const ending = await client.put("kv/ending", 1, { ttl_ms: 60_000 });
  const entry = { key: "kv/ending", value: 1, version: ending.seq, tsMs: ending.tsMs, expiresMs: ending.tsMs + 60_000 };
  assert.deepEqual(await client.entry("kv/ending"), entry);
  for await (const each of client.scan("kv/ending")) assert.deepEqual(each, entry);
  for await (const each of client.watch("kv/ending", { since: ending.seq - 1 })) {
    assert.equal(each.expiresMs, entry.expiresMs);
    break;
  }
  await client.run((view) => {
    view.put("kv/ending", 2, { ttl_ms: 30_000 });
    view.put("kv/lasting", 1, { ttl_ms: 30_000 });
    view.put("kv/lasting", 2);
  });
  const again = await client.entry("kv/ending");
  assert.deepEqual([again.value, again.expiresMs], [2, again.tsMs + 30_000]);
  assert.equal((await client.entry("kv/lasting")).expiresMs, undefined);
  await client.delete("kv/lasting");
  for (const number of [1, 2, 3, 4]) await client.put(`kv/${number}`, number);
  assert.deepEqual((await collect(client.scan<number>("kv/", { end: "kv/9" }))).map((e) => e.value), [1, 2, 3, 4]);
  assert.equal((await collect(client.scan("kv/", { limit: 3 }))).length, 3);
  const snapshot = await client.read(["kv/1", "kv/2", "kv/3", "__proto__", "kv/1"]);
  assert.deepEqual([...snapshot.entries.keys()], ["kv/1", "kv/2", "kv/3", "__proto__"]);
  assert.equal(snapshot.get("__proto__"), undefined);
  await client.delete("kv/1");
  assert.equal(await client.get("kv/1"), undefined);
  assert.equal(await client.get("kv/1", { at: snapshot.seq }), 1);
  assert.equal(await client.get("kv/1", { consistency: "session" }), undefined);
  assert.equal(await client.get("kv/1", { at: 0 }), undefined);
});

test("transactions and their verdicts", async () => {
  await client.put("stock", 2);
  const stock = await client.entry<number>("stock");
  const order = client.atomic().check(stock).put("order/1", "open").nextId("ids").read("stock");
  order.add("stock", -1, { min: 0 });
  const made = await order.commit();
  assert.deepEqual(made.reads, { ids: 1, stock: 1 });
  assert.equal((await order.commit()).repeated, true);
  assert.equal((await client.verdict(order.id)).seq, made.seq);
  await assert.rejects(client.atomic().check(stock).delete("stock").commit(), (error) => {
    assert.ok(error instanceof CheckFailedError && error.is("precondition-failed"));
    assert.equal(error.code, "check-failed");
    assert.deepEqual([error.failed[0]?.version, error.failed[0]?.value], [made.seq, 1]);
    return true;
  });
  await assert.rejects(client.transaction({ updates: [{ op: "add", key: "stock", by: -5, min: 0 }] }), (error) => {
    assert.ok(error instanceof AbortedError && !(error instanceof CheckFailedError));
    return error.code === "bound-violated" && error.failed[0]?.value === 1;
  });
  await assert.rejects(client.verdict("nobody's", { timeoutS: 1 }), (error) => {
    return error instanceof RequestError && error.is("transaction-unknown");
  });
});

test("what cannot be is refused before it is sent", async () => {
  const is = (type: string) => (error: unknown) => error instanceof RequestError && error.type === type;
  await assert.rejects(client.get(""), is("invalid-key"));
  await assert.rejects(client.get("x".repeat(481)), is("invalid-key"));
  await assert.rejects(client.get("\ud800"), is("invalid-key"));
  await assert.rejects(client.put("n", Number.NaN), is("invalid-json"));
  await assert.rejects(client.put("n", null as never), is("invalid-transaction"));
  await assert.rejects(client.put("n", undefined as never), is("invalid-transaction"));
  await assert.rejects(client.get("n", { at: 3, consistency: "strong" }), is("invalid-parameter"));
  await assert.rejects(client.get("n", { at: 1.5 }), is("invalid-parameter"));
  assert.deepEqual(sent, []);
});

test("what the facade refuses has the type of its table", async () => {
  await assert.rejects(client.put("$constraints", 1), (error) => {
    assert.ok(error instanceof RequestError && error.is("invalid-transaction"), String(error));
    return error.status === 422 && error.code !== undefined;
  });
  await assert.rejects(connect(`${facade.url}/nothing`).get("n"), (error) => {
    return error instanceof RequestError && error.is("no-such-endpoint") && error.status === 404;
  });
});

test("run commits one of two that collide, and calls the other again", async () => {
  let calls = 0;
  const increment = async (view: View) => {
    calls += 1;
    const next = ((await view.get<number>("n")) ?? 0) + 1;
    view.put("n", next);
    assert.equal(await view.get("n"), next);
    return next;
  };
  const taken = await Promise.all(Array.from({ length: 6 }, () => client.run(increment)));
  assert.deepEqual(taken.sort(), [1, 2, 3, 4, 5, 6]);
  assert.ok(calls > 6, "nothing collided");
  assert.equal(await client.get("n"), 6);
});

test("run gives up, and forwards what the function throws", async () => {
  const collide = async (view: View) => {
    await view.get("hot");
    await client.put("hot", sent.length);
    view.put("hot", -1);
  };
  await assert.rejects(client.run(collide, { conflictsMax: 2 }), (error) => {
    return error instanceof ConflictError && error.failed[0]?.key === "hot";
  });
  await assert.rejects(client.run(() => Promise.reject(new RangeError("mine"))), RangeError);
});

test("run sees one snapshot, and writes nothing where nothing is written", async () => {
  await client.put("s/1", 1);
  await client.put("s/2", 2);
  sent = [];
  let kept: View | undefined;
  const seen = await client.run(async (view) => {
    kept = view;
    const first = await view.get("s/1");
    await client.put("s/2", 20);
    const sum = (await collect(view.scan<number>("s/"))).reduce((total, entry) => total + entry.value!, 0);
    return [first, await view.get("s/2"), sum];
  });
  assert.deepEqual(seen, [1, 2, 3]);
  assert.equal(sent.filter((line) => line.endsWith("/transactions")).length, 1);
  await assert.rejects(kept!.get("s/1"), ClosedError);
});

test("run scans and writes; who adds a key to a range collides with it", async () => {
  await client.put("o/1", 1);
  let calls = 0;
  const count = await client.run(async (view) => {
    calls += 1;
    const { length } = await collect(view.scan("o/"));
    if (calls === 1) await client.put("o/2", 2);
    view.put("orders", length);
    return length;
  });
  assert.deepEqual([count, calls, await client.get("orders")], [2, 2, 2]);
  const atMost = async (view: View) => {
    const { length } = await collect(view.scan("bound/"));
    if (length < 3) view.put(`bound/${Math.random()}`, length);
  };
  await Promise.all(Array.from({ length: 6 }, () => client.run(atMost)));
  assert.equal((await collect(client.scan("bound/"))).length, 3);
  const unsafe = [
    (view: View) => view.scan(),
    (view: View) => view.scan("", { start: "o" }),
    (view: View) => view.scan("", { end: "o" }),
  ];
  for (const scan of unsafe) {
    const writing = async (view: View) => view.put("n", (await collect(scan(view))).length);
    await assert.rejects(client.run(writing), UnsafeScanError);
  }
});

test("a scan under run shows what was written before it began", async () => {
  for (const name of ["v/1", "v/3", "v/5", "v/7"]) await client.put(name, 0);
  const values = async (view: View, limit?: number) =>
    (await collect(view.scan("v/", limit === undefined ? {} : { limit }))).map(({ key, value }) => [key, value]);
  const shown = await client.run(async (view) => {
    view.put("v/2", [2]);
    view.put("v/9", 9);
    view.put("v/5", 5);
    view.delete("v/1");
    const ahead = [];
    for await (const { key } of view.scan("v/")) {
      ahead.push(key);
      view.put(`${key}0`, 1);
    }
    for (const key of ahead) view.delete(`${key}0`);
    return { ahead, all: await values(view), two: await values(view, 2), three: await values(view, 3) };
  });
  const all = [["v/2", [2]], ["v/3", 0], ["v/5", 5], ["v/7", 0], ["v/9", 9]];
  assert.deepEqual(shown.ahead, all.map(([key]) => key));
  assert.deepEqual([shown.all, shown.two, shown.three], [all, all.slice(0, 2), all.slice(0, 3)]);
  assert.deepEqual((await collect(client.scan("v/"))).map(({ key, value }) => [key, value]), all);
});

test("a transaction names ranges", async () => {
  const range = { prefix: "t/" };
  const made = await client.atomic().checkRange(range, { exists: false }).put("t/1", 1).readRange(range).commit();
  assert.deepEqual(made.ranges, [{ range, entries: [{ key: "t/1", value: 1, version: made.seq }] }]);
  const again = client.atomic().checkRange({ start: "t/1", end: "t/2" }, { count: 0, version_le: made.seq });
  await assert.rejects(again.put("t/1", 2).commit(), (error) => {
    return error instanceof CheckFailedError && error.failed[0]?.check === "range" && error.failed[0].count === 1;
  });
  const read = await client.transaction({ reads: ["t/1", { range }], checks: [{ range, count_le: 1 }] });
  assert.deepEqual([read.reads, read.ranges], [{ "t/1": 1 }, made.ranges]);
});

test("a watch goes on after a cut, without gap or repetition", async () => {
  const watch = await client.watch<number>("w/").start();
  await client.put("w/1", 1);
  await client.put("other", 1);
  const first = (await watch.next()).value;
  assert.deepEqual([first.key, first.op, first.before, first.value, first.number], ["w/1", "c", undefined, 1, 1]);
  await facade.command("cut");
  await client.atomic().put("w/2", 2).put("w/3", 3).commit();
  await client.delete("w/1");
  const later = [await watch.next(), await watch.next(), await watch.next()].map((step) => step.value);
  assert.deepEqual(later.map((change) => [change.key, change.value]), [["w/2", 2], ["w/3", 3], ["w/1", undefined]]);
  const begun = sent.filter((line) => line.includes("changes after")).map((line) => Number(line.split(" ").pop()));
  assert.ok(begun.length > 1 && begun.at(-1)! >= first.seq, begun.join());
  const { seq } = watch;
  await watch.close();
  assert.deepEqual(await watch.next(), { done: true, value: undefined });
  await client.put("w/4", 4);
  for await (const change of client.watch("w/", { since: seq! })) {
    assert.equal(change.key, "w/4");
    break;
  }
});

test("a watch takes ranges and checks of values", async () => {
  const { seq } = await client.put("f/a", 1);
  await client.put("f/b", 7);
  await client.put("f/b", 2);
  await client.delete("f/b");
  const found = async (count: number, options: WatchOptions) => {
    const watch = client.watch<number>("f/", { since: seq - 1, ...options });
    const changes = [];
    while (changes.length < count) changes.push((await watch.next()).value);
    await watch.close();
    return changes.map(({ key, before, value }) => [key, before, value]);
  };
  assert.deepEqual(await found(1, { end: "f/b" }), [["f/a", undefined, 1]]);
  assert.deepEqual(await found(1, { start: "f/b", where: { lt: 5 } }), [["f/b", 7, 2]]);
  assert.deepEqual(await found(1, { where: { exists: false } }), [["f/b", 2, undefined]]);
  assert.deepEqual(await found(1, { whereBefore: { ge: 5 } }), [["f/b", 7, 2]]);
  const refused: unknown[] = [
    { where: {} }, { where: { near: 1 } }, { where: { ge: Number.NaN } }, { where: { exists: 1 } },
    { whereBefore: { version: 1 } }, { where: { lt: true } }, { end: "a".repeat(9_999) },
  ];
  for (const options of refused) assert.throws(() => client.watch("", options as WatchOptions), RequestError);
});

test("SQL on tables", async () => {
  await client.sql("create table t (id int primary key, name text)");
  const [made, found] = await client.sqlTransaction([
    { sql: "insert into t values (?, ?), (2, 'b')", params: [1, "a"] },
    "select name from t order by id",
  ]);
  assert.deepEqual([made!.changed, found!.changed, found!.rows], [2, undefined, [["a"], ["b"]]]);
  assert.deepEqual(found!.columns, [{ name: "name", type: "VARCHAR" }]);
  const { rows, changed } = await client.sql("delete from t where id = $id returning name", { id: 1 });
  assert.deepEqual([rows, changed], [[["a"]], 1]);
  assert.deepEqual((await client.sql("select id from t")).rows, [[2]]);
  assert.deepEqual((await client.sql("select id from t", [], { at: made!.seq })).rows, [[1], [2]]);
  await assert.rejects(client.sql("select * from x"), (error) => {
    return error instanceof RequestError && error.is("query-invalid") && error.members["column"] === 15;
  });
  await assert.rejects(client.sql("insert into t values (2, 'c')"), ConstraintViolatedError);
  await assert.rejects(async () => client.sqlTransaction([]), RequestError);
  const add = () => client.sql("update t set id = id + 1 where id < 10");
  await Promise.all([add(), add()]);
  assert.deepEqual((await client.sql("select id from t")).rows, [[4]]);
});

test("signals end what waits", async () => {
  const stop = new AbortController();
  const waiting = client.watch("nothing/", { signal: stop.signal }).next();
  stop.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  await assert.rejects(client.get("n", { signal: AbortSignal.abort(new Error("never")) }), /never/);
});

test("an unknown outcome can be asked for, and sent again", async () => {
  await facade.command("stop");
  let unknown: OutcomeUnknownError | undefined;
  const order = client.atomic().put("late", 1);
  await assert.rejects(order.commit({ timeoutS: 0.3 }), (error) => {
    unknown = error as OutcomeUnknownError;
    return error instanceof OutcomeUnknownError && error.id === order.id;
  });
  await facade.command("go");
  const made = await unknown!.sendAgain();
  assert.equal((await unknown!.ask()).seq, made.seq);
  assert.equal(await client.get("late"), 1);
});

test("a closed client serves no more", async () => {
  const other = connect(facade.url);
  const waiting = other.watch("x/").next();
  other.close();
  await assert.rejects(waiting, ClosedError);
  await assert.rejects(other.get("x"), ClosedError);
});

test("what was sent before a client was closed is unknown", async () => {
  const other = connect(facade.url);
  await facade.command("stop");
  const put = other.put("closed/a", 1);
  setTimeout(() => other.close(), 200);
  await assert.rejects(put, OutcomeUnknownError);
  await facade.command("go");
  assert.equal(await client.get("closed/a"), 1);
});

test("numbers that JSON has not are refused in parameters of SQL", async () => {
  await assert.rejects(client.sql("select ?", [Number.NaN]), { code: "number-range" });
  await assert.rejects(client.sql("select $a", { a: [1 / 0] }), { code: "number-range" });
});

test("integers beyond 2^53 with a codec that keeps them", async () => {
  const big = connect(facade.url, {
    json: {
      parse: (text) => JSON.parse(text.replace(/([:[,])(-?[0-9]{16,})(?=[,\]}])/g, '$1"$2n"'), (_, value: unknown) =>
        typeof value === "string" && /^-?[0-9]+n$/.test(value) ? BigInt(value.slice(0, -1)) : value),
      stringify: (value) => JSON.stringify(value, (_, part: unknown) => (typeof part === "bigint" ? `${part}n` : part))
        .replace(/"(-?[0-9]+)n"/g, "$1"),
    },
  });
  await big.put("big", 9007199254740993n as never);
  assert.equal(await big.get<unknown>("big"), 9007199254740993n);
  assert.equal(await client.get("big"), 9007199254740992);
});
