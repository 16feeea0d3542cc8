/** Reads and scans; each is tried again after whatever may pass. */

import { ClientError, RequestError } from "./errors.js";
import type { HttpRequest, Transport } from "./http.js";
import { type Freshness, invalid, type Retry, type Session } from "./session.js";
import { KEY_BYTES_MAX } from "./tables.js";
import type { Entry, Json, Value } from "./types.js";

/** What calls need: where to send, and what the client remembers. */
export interface Context {
  readonly transport: Transport;
  readonly session: Session;
  readonly signal?: AbortSignal | undefined;
}

/** Keys at one seq; undefined for those that are absent. */
export interface Reading {
  readonly seq: number;
  readonly entries: Map<string, Entry | undefined>;
}

interface WireEntry {
  key: string;
  value: Json;
  version: number;
  ts_ms: number;
  expires_ms?: number;
}

/** Pause before the next attempt, as long as the client is open. */
export function sleep({ transport, session, signal }: Context, seconds: number): Promise<void> {
  return transport.pause((ending) => session.surroundings.sleep(seconds, ending), signal);
}

/** Perform a request that changes nothing; repeat it after failures that may pass. */
export async function tried<T>(
  context: Context,
  retry: Retry,
  perform: (waitS: number) => Promise<T>,
  timeS: () => number = () => retry.waitS(),
): Promise<T> {
  for (;;) {
    let pause: number | undefined;
    try {
      return await perform(timeS());
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      pause = error.retriable ? retry.again(error) : undefined;
      if (pause === undefined) throw error;
    }
    await sleep(context, pause);
  }
}

/** Read keys at one snapshot, in as many requests as that takes. */
export async function read(
  context: Context,
  keys: readonly string[],
  freshness: Freshness,
  timeoutS?: number,
): Promise<Reading> {
  keys.forEach(checkKey);
  const retry = context.session.retry(timeoutS);
  const wanted = [...new Set(keys)];
  const size = context.session.options.readKeys;
  const first = await readSome(context, retry, wanted.slice(0, size), freshness);
  for (let begin = size; begin < wanted.length; begin += size) {
    const part = wanted.slice(begin, begin + size);
    const more = await readSome(context, retry, part, { at: first.seq });
    for (const [key, entry] of more.entries) first.entries.set(key, entry);
  }
  context.session.saw(first.seq);
  return first;
}

/** Read keys in one request, or in halves if they or their values are too many for one. */
async function readSome(
  context: Context,
  retry: Retry,
  keys: readonly string[],
  freshness: Freshness,
): Promise<Reading> {
  if (freshness.at === 0) return { seq: 0, entries: new Map(keys.map((key) => [key, undefined])) };
  try {
    return await tried(context, retry, (waitS) => sendRead(context, keys, freshness, waitS));
  } catch (error) {
    const tooMany = error instanceof RequestError && (error.is("answer-too-large") || error.is("too-large"));
    if (!tooMany || keys.length < 2) throw error;
  }
  const half = Math.trunc(keys.length / 2);
  const left = await readSome(context, retry, keys.slice(0, half), freshness);
  const right = await readSome(context, retry, keys.slice(half), { at: left.seq });
  return { seq: left.seq, entries: new Map([...left.entries, ...right.entries]) };
}

async function sendRead(
  { transport, signal }: Context,
  keys: readonly string[],
  freshness: Freshness,
  timeoutS: number,
): Promise<Reading> {
  const body = transport.json.stringify({ keys, ...freshness });
  const headers = { "Content-Type": "application/json" };
  const answer = await transport.send({ method: "POST", path: "/v1/read", headers, body, timeoutS, signal });
  const found = answer.json() as { seq: number; entries: Record<string, WireEntry | null> };
  const entries = keys.map((key): [string, Entry | undefined] => {
    const entry = Object.hasOwn(found.entries, key) ? found.entries[key] : null;
    return [key, entry ? entryOf(entry) : undefined];
  });
  return { seq: found.seq, entries: new Map(entries) };
}

/** A scan on its way: which keys, which snapshot, where it is. */
export class RangeScan {
  ended: boolean;
  /** The entries so far, and the last one of them. */
  count = 0;
  last: Entry | undefined;
  /** All entries have been read; undefined: nothing has been asked yet. */
  whole: boolean | undefined;
  /** How many entries it may still give; undefined: all. */
  left: number | undefined;
  /** What its function had written in the range before; undefined: removed. */
  own: ReadonlyMap<string, Value | undefined> = new Map();
  #cursor: string | undefined;

  constructor(
    readonly bounds: { prefix: string; start: string | undefined; end: string | undefined },
    public freshness: Freshness,
    limit: number | undefined,
  ) {
    this.left = limit;
    this.ended = limit !== undefined && limit < 1;
  }

  /** Read the next page; an empty one is the last. */
  async page(context: Context, timeoutS?: number): Promise<Entry[]> {
    const { prefix, start, end } = this.bounds;
    for (const bound of [prefix, start ?? "", end ?? ""]) checkBound(bound);
    if (this.freshness.at === 0) this.ended = this.whole = true; // before the first transaction
    if (this.ended) return [];
    const most = context.session.options.pageEntries;
    const limit = this.left === undefined ? most : Math.min(most, this.left);
    const bounds = { prefix: prefix || undefined, start, end, ...this.freshness };
    const params = this.#cursor === undefined ? { ...bounds, limit } : { cursor: this.#cursor, limit };
    const retry = context.session.retry(timeoutS);
    const page = await tried(context, retry, async (waitS) => {
      const request: HttpRequest = { method: "GET", path: "/v1/kv", params, timeoutS: waitS, signal: context.signal };
      const answer = await context.transport.send(request);
      return answer.json() as { seq: number; entries: WireEntry[]; cursor: string | null };
    });
    context.session.saw(page.seq);
    this.freshness = { at: page.seq };
    this.#cursor = page.cursor ?? undefined;
    if (this.left !== undefined) this.left -= page.entries.length;
    this.whole = page.cursor === null;
    this.ended = this.whole || this.left === 0;
    this.count += page.entries.length;
    const entries = page.entries.map(entryOf);
    this.last = entries.at(-1) ?? this.last;
    return entries;
  }
}

/** A key that is absent, as an entry. */
export function absent(key: string): Entry {
  return { key, value: undefined, version: 0, tsMs: 0 };
}

/** Refuse what can be no key. */
export function checkKey(key: string): void {
  const size = bytesOf(key);
  if (!(size >= 1 && size <= KEY_BYTES_MAX)) {
    const detail = `A key is text of 1 to ${KEY_BYTES_MAX} bytes of UTF-8.`;
    throw new RequestError("invalid-key", 400, detail);
  }
}

/** Refuse what can be no prefix, start or end. */
export function checkBound(bound: string): void {
  if (!(bytesOf(bound) <= KEY_BYTES_MAX)) {
    throw invalid(`prefix, start and end are text of at most ${KEY_BYTES_MAX} bytes of UTF-8.`);
  }
}

/** Bytes of UTF-8; NaN for what is no Unicode text. */
function bytesOf(text: unknown): number {
  if (typeof text !== "string" || /\p{Surrogate}/u.test(text)) return Number.NaN;
  return new TextEncoder().encode(text).length;
}

function entryOf({ key, value, version, ts_ms, expires_ms }: WireEntry): Entry {
  return { key, value, version, tsMs: ts_ms, ...endOf(expires_ms) };
}

/** The end of a key, as entries and changes have it. */
export const endOf = (ms: number | undefined): { expiresMs?: number } => (ms === undefined ? {} : { expiresMs: ms });
