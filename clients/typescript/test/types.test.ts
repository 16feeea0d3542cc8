/** What the types must allow and refuse; the compiler is the test. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type AbortedError, type Client, type Json, RequestError } from "../src/index.js";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const holds = <T extends true>(value?: T) => value;

export async function typed(client: Client, error: RequestError & AbortedError): Promise<void> {
  const value = await client.get("k");
  holds<Equal<typeof value, Json | undefined>>();
  const number = await client.run(async (view) => (await view.get<number>("n")) ?? 0);
  holds<Equal<typeof number, number>>();
  for await (const change of client.watch<{ name: string }>("k/")) {
    holds<Equal<typeof change.value, { name: string } | undefined>>();
  }
  error.is("key-not-found");
  // @ts-expect-error - no such problem type
  error.is("no-such-problem");
  // @ts-expect-error - null is no value
  await client.put("k", null);
  // @ts-expect-error - a put has a value
  await client.transaction({ updates: [{ op: "put", key: "k" }] });
  // @ts-expect-error - no such consistency
  await client.get("k", { consistency: "weak" });
}

test("errors tell their problem type", () => {
  const error = new RequestError("overloaded", 503, "busy");
  assert.ok(error.is("overloaded") && error.retriable && !error.uncertain);
  const unknown = new RequestError("of-the-future", 503, "later");
  assert.ok(unknown.retriable && unknown.uncertain);
});
