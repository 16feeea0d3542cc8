import assert from "node:assert/strict";
import { test } from "node:test";
import { connect, OtherGenerationError } from "../src/index.js";

/** A facade that answers reads, and refuses other generations than its own. */
function facade() {
  const state = { generation: "0", said: [] as (string | null)[] };
  const fetcher: typeof fetch = async (_, init) => {
    const said = new Headers(init?.headers).get("Streamydb-Generation");
    state.said.push(said);
    const headers = { "Streamydb-Generation": state.generation, "Content-Type": "application/json" };
    if (said !== null && said !== state.generation) {
      const problem = { type: "/problems/other-generation", status: 410, detail: "Another one." };
      const type = { ...headers, "Content-Type": "application/problem+json" };
      return new Response(JSON.stringify(problem), { status: 410, headers: type });
    }
    return new Response(JSON.stringify({ seq: 7, entries: { a: null } }), { headers });
  };
  return { state, client: connect("http://facade", { fetch: fetcher }) };
}

test("a client of a lost history hears of it once, and forgets", async () => {
  const { state, client } = facade();
  await client.get("a");
  assert.deepEqual([client.session.seq, client.session.generation], [7, "0"]);
  state.generation = "3f9c01d2";
  await assert.rejects(client.get("a"), OtherGenerationError);
  assert.deepEqual([client.session.seq, client.session.generation], [0, undefined]);
  await client.get("a");
  assert.equal(client.session.generation, "3f9c01d2");
  assert.deepEqual(state.said, [null, "0", null]);
});

test("a session of another process goes on with its generation", async () => {
  const { state, client } = facade();
  client.session.saw(7, 0, undefined, "3f9c01d2");
  await assert.rejects(client.get("a"), OtherGenerationError);
  state.generation = "3f9c01d2";
  client.session.saw(7, 0, undefined, "3f9c01d2");
  await client.get("a", { consistency: "session" });
  assert.deepEqual(state.said, ["3f9c01d2", "3f9c01d2"]);
});
