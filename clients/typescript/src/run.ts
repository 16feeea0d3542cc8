/**
 * Functions as transactions: reads become version checks, writes become updates.
 *
 * An attempt reads at one snapshot and commits only if every key that it read has its version
 * still, and every range that it scanned its keys. On a conflict the function is called again, at a
 * snapshot that includes what it collided with.
 */

import {
  CheckFailedError,
  ClosedError,
  ConflictError,
  refusal,
  SnapshotGoneError,
} from "./errors.js";
import { comesTo, rangeChecks, withWrites } from "./ranges.js";
import { absent, type Context, checkKey, RangeScan, read, sleep } from "./reads.js";
import type { Freshness } from "./session.js";
import { execute, prepare } from "./transactions.js";
import type { Check, Consistency, Entry, Json, RangeCheck, ScanOptions, Update, Value } from "./types.js";

/** The view of a function under `run`: a snapshot, and the function's own writes over it. */
export class View {
  /** The seq of the snapshot; undefined before the first read. */
  seq: number | undefined;
  /** The snapshot is not kept any more, so that the attempt is void. */
  lost = false;
  readonly #context: Context;
  readonly #freshness: Freshness;
  readonly #seen = new Map<string, Entry | undefined>();
  readonly #writes = new Map<string, Value | undefined>();
  readonly #ends = new Map<string, { ttl_ms?: number }>();
  readonly #scans: RangeScan[] = [];
  #ended = false;

  /** @internal */
  constructor(context: Context, freshness: Freshness) {
    this.#context = context;
    this.#freshness = freshness;
  }

  /** The value of a key, own writes included; undefined if it is absent. */
  async get<T = Json>(key: string): Promise<T | undefined> {
    return (await this.read<T>([key])).get(key);
  }

  /** The values of keys in one request; undefined for those that are absent. */
  async read<T = Json>(keys: Iterable<string>): Promise<Map<string, T | undefined>> {
    this.#checkOpen();
    const wanted = [...keys];
    const missing = wanted.filter((key) => !this.#seen.has(key) && !this.#writes.has(key));
    if (missing.length) await this.#fetch(missing);
    return new Map(wanted.map((key) => [key, structuredClone(this.#value(key)) as T | undefined]));
  }

  /** The entries of a range at the snapshot, with what had been written when the scan began. */
  async *scan<T = Json>(
    prefix = "",
    options: Pick<ScanOptions, "start" | "end" | "limit"> = {},
  ): AsyncGenerator<Entry<T>, void, void> {
    this.#checkOpen();
    const bounds = { prefix, start: options.start, end: options.end };
    const range = new RangeScan(bounds, this.#place(), options.limit);
    range.own = new Map([...this.#writes].filter(([key]) => comesTo(range, [key])));
    this.#scans.push(range);
    while (!range.ended) {
      this.#checkOpen();
      if (this.seq === undefined) await this.#fetch([]);
      const { last, left } = range;
      const unseen = comesTo(range, range.own.keys());
      range.freshness = this.#place();
      let page = await this.#kept(() => range.page(this.#context));
      if (unseen) {
        page = withWrites(range, page, last).slice(0, left);
        range.left = left === undefined ? undefined : left - page.length;
        range.ended = range.whole === true || range.left === 0;
      }
      yield* page as Entry<T>[];
    }
  }

  /**
   * Store a value when the function has ended; reads see it from now on. The key ends `ttl_ms`
   * after the commit, or never.
   */
  put(key: string, value: Value, ends: { ttl_ms?: number } = {}): void {
    if (value === undefined || value === null) throw refusal("null-value");
    this.#write(key, structuredClone(value));
    this.#ends.set(key, { ...ends });
  }

  /** Remove a key when the function has ended. */
  delete(key: string): void {
    this.#write(key, undefined);
  }

  /** @internal Commit what was written, if anything was. */
  async commit(): Promise<void> {
    if (!this.#writes.size) return;
    const { session } = this.#context;
    const versions = [...this.#seen].map(([key, entry]): Check => ({ key, version: entry?.version ?? 0 }));
    const checks: (Check | RangeCheck)[] = [...versions, ...this.#scans.flatMap((scan) => rangeChecks(scan, this.seq ?? 0))];
    const updates = [...this.#writes].map(
      ([key, value]): Update =>
        value === undefined ? { op: "delete", key } : { op: "put", key, value, ...this.#ends.get(key) },
    );
    const id = session.newId();
    const dated = () => prepare(this.#context, id, { checks, updates }, session.deadlineMs());
    await execute(this.#context, dated(), undefined, true, dated);
  }

  /** @internal Allow nothing more: the function has ended. */
  end(): void {
    this.#ended = true;
  }

  /** Read keys at the snapshot, which others may have taken meanwhile (as with `Promise.all`). */
  async #fetch(keys: string[]): Promise<void> {
    let reading = await this.#kept(() => read(this.#context, keys, this.#place()));
    if (this.seq !== undefined && reading.seq !== this.seq) {
      reading = await this.#kept(() => read(this.#context, keys, this.#place()));
    }
    this.seq = reading.seq;
    for (const [key, entry] of reading.entries) this.#seen.set(key, entry);
  }

  async #kept<T>(act: () => Promise<T>): Promise<T> {
    try {
      return await act();
    } catch (error) {
      this.lost ||= error instanceof SnapshotGoneError;
      throw error;
    }
  }

  #place(): Freshness {
    return this.seq === undefined ? this.#freshness : { at: this.seq };
  }

  #value(key: string): Json | undefined {
    return this.#writes.has(key) ? this.#writes.get(key) : (this.#seen.get(key) ?? absent(key)).value;
  }

  #write(key: string, value: Value | undefined): void {
    this.#checkOpen();
    checkKey(key);
    this.#writes.set(key, value);
  }

  #checkOpen(): void {
    if (this.#ended) {
      throw new ClosedError("The function under run() has ended: use its view only within it.");
    }
  }
}

/** Call a function until it commits; return what it returned. */
export async function run<T>(
  context: Context,
  call: (view: View) => Promise<T> | T,
  consistency: Consistency | undefined,
  conflictsMax = context.session.options.conflictsMax,
): Promise<T> {
  const { session } = context;
  const retry = session.retry();
  let freshness = session.freshness(consistency);
  let conflict: CheckFailedError | undefined;
  for (let number = 1; number <= conflictsMax; number += 1) {
    context.signal?.throwIfAborted();
    context.transport.checkOpen();
    const view = new View(context, freshness);
    try {
      const value = await call(view);
      if (!view.lost) {
        conflict = await committed(view);
        if (conflict === undefined) return value;
        freshness = session.floor(session.seq);
      }
    } catch (error) {
      if (!view.lost) throw error;
    } finally {
      view.end();
    }
    if (number < conflictsMax) await sleep(context, retry.pauseS());
  }
  const detail =
    `The function met a conflict in each of ${conflictsMax} calls; nothing was written. ` +
    "Let it do less, or allow more calls (conflictsMax).";
  throw new ConflictError(detail, conflict?.members ?? {}, conflict?.failed ?? [], "precondition-failed");
}

/** Commit; return the conflict that was met, whose seq the session has seen. */
async function committed(view: View): Promise<CheckFailedError | undefined> {
  try {
    await view.commit();
  } catch (error) {
    if (error instanceof CheckFailedError) return error;
    throw error;
  }
  return undefined;
}
