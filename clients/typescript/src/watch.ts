/**
 * Following the changes: one unbroken sequence made of as many streams as it takes.
 *
 * A stream tells now and then up to which seq everything has been given. After a cut, the next one
 * begins there, and what was received already is dropped by (seq, number, key): no gap, no repetition.
 */

import { ClientError, ClosedError, UnexpectedAnswerError } from "./errors.js";
import { type Context, checkBound, endOf, read, sleep } from "./reads.js";
import { invalid, type Retry } from "./session.js";
import type { Change, Json, WatchOptions } from "./types.js";

interface Progress {
  readonly progress: number;
}
type Event = Change | Progress;

/** No event of a facade is nearly as long: two values, and what is around them. */
const BUFFER_MAX = 16_777_216;
const COMPARATORS = ["eq", "ne", "lt", "le", "gt", "ge", "exists", "version"];
/** How long an event stream may be silent; a facade sends a heartbeat every 15 s. */
const SILENCE_S = 60;

/** The changes, as an iterator that connects again by itself; it ends with `close` or `break`. */
export class Watch<T = Json> implements AsyncIterableIterator<Change<T>> {
  /** All changes up to it have been given: what to begin after, to go on later. */
  seq: number | undefined;
  readonly #context: Context & { readonly signal: AbortSignal };
  readonly #signal: AbortSignal | undefined;
  readonly #wanted: Readonly<Record<string, string | undefined>>;
  readonly #closing = new AbortController();
  readonly #closed = new ClosedError("The watch is closed.");
  #received = 0;
  #place: readonly [number, number] = [0, 0];
  readonly #keys = new Set<string>();
  #ready: Event[] = [];
  #stream: AsyncGenerator<Event[], void, void> | undefined;
  #started: Promise<void> | undefined;

  /** @internal */
  constructor(context: Context, prefix: string, options: WatchOptions) {
    this.seq = options.since;
    this.#wanted = selection(context, prefix, options);
    this.#signal = context.signal;
    this.#context = { ...context, signal: this.#closing.signal };
  }

  /** Begin now, and not when the first change is asked for; throws `ClosedError` when it is closed. */
  async start(): Promise<this> {
    await this.#going(() => this.#begun());
    return this;
  }

  /** End it. */
  async close(): Promise<void> {
    this.#closing.abort(this.#closed);
    await this.#leave();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async return(): Promise<IteratorResult<Change<T>>> {
    await this.close();
    return { done: true, value: undefined };
  }

  /** Wait for the next change. */
  async next(): Promise<IteratorResult<Change<T>>> {
    try {
      return { done: false, value: (await this.#going(() => this.#next())) as Change<T> };
    } catch (error) {
      if (error === this.#closed) return { done: true, value: undefined };
      throw error;
    }
  }

  /** Act, until the caller's signal or `close` ends it; leave nothing behind if it fails. */
  async #going<R>(act: () => Promise<R>): Promise<R> {
    if (this.#signal?.aborted) this.#abort();
    else this.#signal?.addEventListener("abort", this.#abort);
    try {
      this.#context.signal.throwIfAborted();
      return await act();
    } catch (error) {
      await this.#leave();
      throw error;
    }
  }

  async #leave(): Promise<void> {
    this.#signal?.removeEventListener("abort", this.#abort);
    await this.#cut();
  }

  readonly #abort = () => this.#closing.abort(this.#signal?.reason);

  /** Begin, unless it has begun. */
  #begun(): Promise<void> {
    this.#started ??= this.#start().catch((error: unknown) => {
      this.#started = undefined;
      throw error;
    });
    return this.#started;
  }

  async #start(): Promise<void> {
    const { session } = this.#context;
    this.seq ??= (await read(this.#context, [], session.freshness())).seq;
    this.#received = this.seq;
  }

  async #next(): Promise<Change> {
    const { session, signal } = this.#context;
    await this.#begun();
    let retry: Retry | undefined;
    for (;;) {
      signal.throwIfAborted();
      const change = this.#given();
      if (change) return change;
      try {
        const events = await this.#receive();
        if (events.length) retry = undefined;
        this.#take(events);
      } catch (error) {
        await this.#cut();
        if (!(error instanceof ClientError)) throw error;
        retry ??= session.retry(session.options.reconnectS);
        const pause = error.retriable && retry.leftS() ? retry.again(error) : undefined;
        if (pause === undefined) throw error;
        await sleep(this.#context, pause);
      }
    }
  }

  /** Wait for events, on a new stream if there is none. */
  async #receive(): Promise<Event[]> {
    this.#stream ??= events(this.#context, this.#received, this.#wanted);
    return (await this.#stream.next()).value ?? [];
  }

  async #cut(): Promise<void> {
    const stream = this.#stream;
    this.#stream = undefined;
    await stream?.return().catch(() => undefined);
  }

  /** Keep what has not been received before. */
  #take(found: readonly Event[]): void {
    for (const event of found) {
      if ("progress" in event) {
        if (event.progress > this.#received) {
          this.#received = event.progress;
          this.#ready.push(event);
        }
        continue;
      }
      if (event.seq > this.#received && this.#isNew(event)) this.#ready.push(event);
    }
  }

  /**
   * Note a change; false for one that was received before. Keys that end at one seq may share a
   * number: those of the last place are remembered.
   */
  #isNew({ seq, number, key }: Change): boolean {
    const [lastSeq, lastNumber] = this.#place;
    const later = seq > lastSeq || (seq === lastSeq && number > lastNumber);
    const same = seq === lastSeq && number === lastNumber;
    if (!later && (!same || this.#keys.has(key))) return false;
    if (later) {
      this.#place = [seq, number];
      this.#keys.clear();
    }
    this.#keys.add(key);
    return true;
  }

  /** Take the next change that is ready, and the progress on both sides of it. */
  #given(): Change | undefined {
    this.#skipProgress();
    const change = this.#ready.shift();
    if (change === undefined || "progress" in change) return undefined;
    this.#skipProgress();
    this.#context.session.saw(change.seq);
    return change;
  }

  #skipProgress(): void {
    for (let first = this.#ready[0]; first && "progress" in first; first = this.#ready[0]) {
      this.seq = first.progress;
      this.#ready.shift();
    }
  }
}

/** The parameters that say which changes are wanted; what makes no sense is refused. */
function selection(context: Context, prefix: string, options: WatchOptions): Record<string, string | undefined> {
  const { start, end, where, whereBefore } = options;
  for (const bound of [prefix, start ?? "", end ?? ""]) checkBound(bound);
  const { stringify } = context.transport.json;
  const after = where && stringify(condition("where", where, COMPARATORS));
  const before = whereBefore && stringify(condition("whereBefore", whereBefore, COMPARATORS.slice(0, -1)));
  return { prefix: prefix || undefined, start, end, where: after, where_before: before };
}

/** Refuse what is no check without its key. */
function condition<T extends object>(name: string, given: T, known: readonly string[]): T {
  const parts = Object.entries(given);
  const fits = ([part, value]: [string, unknown]) =>
    known.includes(part) &&
    value !== undefined &&
    !(typeof value === "number" && !Number.isFinite(value)) &&
    (part !== "exists" || typeof value === "boolean") &&
    (!["lt", "le", "gt", "ge"].includes(part) || ["number", "bigint", "string"].includes(typeof value));
  if (parts.length && parts.every(fits)) return given;
  throw invalid(`${name} is a check without its key, such as {"ge": 100}: ${known.join(", ")}.`);
}

/** The events of one stream, some at a time. */
async function* events(
  context: Context,
  since: number,
  params: Readonly<Record<string, string | undefined>>,
): AsyncGenerator<Event[], void, void> {
  const { transport, signal } = context;
  const headers = { Accept: "text/event-stream", "Last-Event-ID": String(since) };
  const request = { method: "GET", path: "/v1/changes", params, headers, signal } as const;
  let rest = "";
  for await (const text of transport.open({ ...request, timeoutS: SILENCE_S })) {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop() ?? "";
    if (rest.length > BUFFER_MAX) throw new UnexpectedAnswerError("An event of the stream has no end.", 200);
    yield blocks.flatMap((block) => decoded(context, block));
  }
}

/** The events in the lines between two empty ones: a change and the progress with it. */
function decoded({ transport }: Context, block: string): Event[] {
  const fields = new Map<string, string>();
  for (const line of block.split("\n")) {
    if (line.startsWith(":")) return [];
    const [, name = "", value = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    fields.set(name, value);
  }
  const data = fields.get("data") ?? "";
  const found: Event[] = [];
  if (fields.get("event") === "error") {
    throw transport.problemOf(data, 0) ?? new UnexpectedAnswerError("The stream is not one of changes.", 200);
  }
  if (fields.get("event") === "change") found.push(changeOf(transport.json.parse, data));
  if (fields.has("id")) found.push({ progress: Number.parseInt(fields.get("id") ?? "", 10) });
  return found;
}

function changeOf(parse: (text: string) => any, data: string): Change {
  try {
    const { key, op, before, after, ts_ms, expires_ms, source, transaction } = parse(data);
    const place = { seq: source.seq, number: transaction.total_order, tsMs: ts_ms, txnId: transaction.id };
    return { key, op, before: before ?? undefined, value: after ?? undefined, ...place, ...endOf(expires_ms) };
  } catch {
    throw new UnexpectedAnswerError("The stream is not one of changes.", 200);
  }
}
