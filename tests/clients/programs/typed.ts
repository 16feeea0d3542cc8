// The tour of a facade with plain fetch and the types that openapi-typescript makes.
import type { components, paths } from "./schema";

type Schemas = components["schemas"];
type Listed = NonNullable<paths["/v1/kv"]["get"]["parameters"]["query"]>;

async function main(url: string): Promise<void> {
  async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    const answer = await fetch(url + path, { method, ...sent });
    return (await answer.json()) as T;
  }
  const transact = (body: Schemas["transaction"]) =>
    call<Schemas["result"]>("POST", "/v1/transactions", body);
  const list = (wanted: Listed) => {
    const query = Object.entries(wanted).map(([name, value]) => [name, String(value)]);
    return call<Schemas["entries"]>("GET", `/v1/kv?${new URLSearchParams(query)}`);
  };

  const first = await call<Schemas["result"]>("PUT", "/v1/kv/acct/a%20b", 100);
  await call<Schemas["result"]>("PUT", "/v1/kv/acct/2", { owner: "ann" });
  const got = await call<unknown>("GET", "/v1/kv/acct/a%20b");
  const made = await transact({
    checks: [{ key: "acct/a b", version: first.seq, ge: 1 }],
    updates: [
      { op: "add", key: "acct/a b", by: -30, min: 0 },
      { op: "put", key: "order/1", value: "open" },
    ],
    reads: ["acct/a b"],
  });
  // @ts-expect-error - an update without a value is no put
  const wrong: Schemas["update"] = { op: "put", key: "order/1" };
  const refused = await transact({ checks: [{ key: wrong.key, exists: false }] });
  const wanted: Schemas["read_request"] = { keys: ["acct/a b", "nothing"] };
  const reading = await call<Schemas["reading"]>("POST", "/v1/read", wanted);
  const page = await list({ prefix: "acct/", limit: 1 });
  const rest = await list({ cursor: page.cursor ?? "" });
  const problem = await call<Schemas["ProblemDetails"]>("GET", "/v1/kv/nothing");

  const changes: unknown[] = [];
  const stream = await fetch(`${url}/v1/changes?since=0&prefix=acct/`);
  let text = "";
  const reader = stream.body!.pipeThrough(new TextDecoderStream()).getReader();
  while (changes.length < 3) {
    text += (await reader.read()).value ?? "";
    changes.length = 0;
    for (const [, data] of text.matchAll(/event: change\ndata: (.*)\n/g)) {
      const change = JSON.parse(data ?? "") as Schemas["change"];
      changes.push([change.key, change.after]);
    }
  }
  await reader.cancel();
  const seen = {
    got,
    reads: made.reads,
    refused: [refused.status, refused.code, refused.failed[0]?.key],
    absent: reading.entries["nothing"] === null,
    keys: [...page.entries, ...rest.entries].map((entry) => entry.key),
    problem: [problem.status, problem.type],
    changes,
  };
  console.log(JSON.stringify(seen));
}

void main(process.argv[2] ?? "");
