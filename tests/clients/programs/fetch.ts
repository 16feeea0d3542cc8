// The tour of a facade with the client that openapi-generator makes for TypeScript (fetch).
import { ChangeFromJSON, Configuration, DefaultApi, ResponseError } from "./generated";

async function changes(api: DefaultApi, count: number): Promise<unknown[]> {
  const stop = new AbortController();
  const answer = await api.getChangesRaw({ since: 0, prefix: "acct/" }, { signal: stop.signal });
  const found: unknown[] = [];
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of answer.raw.body as unknown as AsyncIterable<Uint8Array>) {
    const events = (rest + decoder.decode(chunk, { stream: true })).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) {
      const data = /^event: change$/m.test(event) && /^data: (.*)$/m.exec(event);
      if (data) {
        const change = ChangeFromJSON(JSON.parse(data[1] ?? ""));
        found.push([change.key, change.after]);
      }
    }
    if (found.length >= count) break;
  }
  stop.abort();
  return found;
}

async function main(url: string): Promise<void> {
  const api = new DefaultApi(new Configuration({ basePath: url }));
  const first = await api.putValue({ key: "acct/a b", body: 100 });
  await api.putValue({ key: "acct/2", body: { owner: "ann" } });
  const got: unknown = await api.getValue({ key: "acct/a b" });
  const made = await api.postTransaction({
    transaction: {
      checks: [{ key: "acct/a b", version: first.seq, ge: 1 }],
      updates: [
        { op: "add", key: "acct/a b", by: -30, min: 0 },
        { op: "put", key: "order/1", value: "open" },
      ],
      reads: ["acct/a b"],
    },
  });
  const refused = await api.postTransaction({
    transaction: { checks: [{ key: "order/1", _exists: false }] }, // the generator's name for it
  });
  const reading = await api.readValues({ readRequest: { keys: ["acct/a b", "nothing"] } });
  const page = await api.listValues({ prefix: "acct/", limit: 1 });
  const rest = await api.listValues({ cursor: page.cursor ?? "" });
  let problem: unknown[] = [];
  try {
    await api.getValue({ key: "nothing" });
  } catch (error) {
    const { status, type } = await (error as ResponseError).response.json();
    problem = [status, type];
  }
  const seen = {
    got,
    reads: made.reads,
    refused: [refused.status, refused.code, refused.failed[0]?.key],
    absent: reading.entries["nothing"] === null,
    keys: [...page.entries, ...rest.entries].map((entry) => entry.key),
    problem,
    changes: await changes(api, 3),
  };
  console.log(JSON.stringify(seen));
}

void main(process.argv[2] ?? "");
