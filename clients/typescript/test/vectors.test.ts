/** The retries of the Python client: the same requests, pauses and outcomes (tests/clients). */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ClientError, connect, RequestError } from "../src/index.js";
import { PROBLEMS } from "../src/tables.js";

interface Answer {
  takes?: number;
  lost?: true;
  refused?: true;
  plain?: number;
  problem?: keyof typeof PROBLEMS;
  code?: string;
  ts_ms?: number;
  retry_after?: number;
  pending?: string;
  verdict?: object;
  read?: number;
  attempt?: string;
}
interface Case {
  call: "put" | "transaction" | "send" | "verdict" | "get";
  answers: Answer[];
  requests: unknown[][];
  pauses: number[];
  /** Of the bodies, less the time of day. */
  deadlines: number[];
  outcome: unknown;
}

const START_MS = 1_700_000_000_000;
const FILE = new URL("../../../../tests/clients/vectors.json", import.meta.url);
const CASES = JSON.parse(readFileSync(FILE, "utf8")) as Record<string, Case>;

/** `asked`: the id in the request. */
function responseOf(answer: Answer, asked: string): Response {
  const id = asked + (answer.attempt ?? "");
  const headers = new Headers({ "Content-Type": "application/json" });
  if (answer.retry_after !== undefined) headers.set("Retry-After", String(answer.retry_after));
  let status = answer.plain ?? 200;
  let body: object = {};
  if (answer.problem) {
    headers.set("Content-Type", "application/problem+json");
    ({ status } = PROBLEMS[answer.problem]);
    body = { type: `/problems/${answer.problem}`, status, detail: "-", code: answer.code, ts_ms: answer.ts_ms };
  } else if (answer.pending) {
    status = 202;
    headers.set("Location", `/v1/transactions/${id}?record=${answer.pending}`);
  } else if (answer.verdict) {
    body = { id, seq: 7, ts_ms: START_MS, reads: {}, ...answer.verdict };
  } else if (answer.read !== undefined) {
    body = { seq: 7, entries: { k: { key: "k", value: answer.read, version: 3, ts_ms: START_MS } } };
  }
  return new Response(JSON.stringify(body), { status, headers });
}

async function played(one: Case): Promise<Pick<Case, "requests" | "pauses" | "deadlines" | "outcome">> {
  const requests: unknown[][] = [];
  const pauses: number[] = [];
  const bodies: string[] = [];
  const answers = one.answers[Symbol.iterator]();
  let now = 1_000;
  const script: typeof fetch = async (input, init) => {
    const { pathname, search } = new URL(String(input));
    const body = init?.body as string | undefined;
    if (body !== undefined && !bodies.includes(body)) bodies.push(body);
    const path = pathname.replace(/^(\/v1\/transactions\/)(?!own$).{36}/, "$1*");
    const prefer = new Headers(init?.headers).get("prefer");
    requests.push([init?.method, path, search.slice(1), prefer, body === undefined ? null : bodies.indexOf(body)]);
    const { value: answer, done } = answers.next();
    assert.ok(!done, "more requests than answers");
    now += answer.takes ?? 1;
    if (answer.lost) throw new TypeError("fetch failed", { cause: { code: "ECONNRESET" } });
    if (answer.refused) throw new TypeError("fetch failed", { cause: { code: "ECONNREFUSED" } });
    const last = decodeURIComponent(pathname.slice(pathname.lastIndexOf("/") + 1));
    return responseOf(answer, body === undefined ? last : (JSON.parse(body) as { id?: string }).id ?? last);
  };
  const client = connect("http://facade", {
    fetch: script,
    surroundings: {
      clock: () => now,
      wallMs: () => START_MS,
      random: () => 0.25,
      sleep: async (seconds) => {
        pauses.push(Math.round(seconds * 1e6) / 1e6);
        now += seconds;
      },
    },
  });
  const own = { id: "own", payload: '{"id":"own","reads":["k"],"deadline_ms":1700000070000}' };
  const calls = {
    put: async () => (await client.put("k", 1)).seq,
    transaction: async () => (await client.transaction({ reads: ["k"] })).seq,
    send: async () => (await client.send(own)).seq,
    verdict: async () => (await client.verdict("own")).seq,
    get: () => client.get("k"),
  };
  let outcome: unknown;
  try {
    outcome = await calls[one.call]();
  } catch (error) {
    if (!(error instanceof ClientError)) throw error;
    const told = error instanceof RequestError && error.members["clock_ms"] ? error.detail : "";
    outcome = error instanceof RequestError ? `${error.type} ${error.code ?? ""} ${told}`.trimEnd() : error.name;
  }
  const deadlines = bodies.flatMap((body) => {
    const { deadline_ms } = JSON.parse(body) as { deadline_ms?: number };
    return deadline_ms === undefined ? [] : [deadline_ms - START_MS];
  });
  return { requests, pauses, deadlines, outcome };
}

test("there are cases", () => assert.ok(Object.keys(CASES).length > 25));

for (const [name, one] of Object.entries(CASES)) {
  test(name, async () => {
    const { requests, pauses, deadlines, outcome } = one;
    assert.deepEqual(await played(one), { requests, pauses, deadlines, outcome });
  });
}
