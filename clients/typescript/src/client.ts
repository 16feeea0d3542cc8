/** The client: its public methods. */

import { type JsonCodec, Transport } from "./http.js";
import { absent, type Context, RangeScan, read } from "./reads.js";
import { run, type View } from "./run.js";
import { DEFAULTS, invalid, type Options, REAL, Session, type Surroundings } from "./session.js";
import { executeSql, prepared } from "./statements.js";
import { ask, execute, type Prepared, prepare } from "./transactions.js";
import type {
  CallOptions, Check, Committed, Consistency, Entry, Json, Range, RangeCheck, ReadOptions, ScanOptions,
  Snapshot, SqlOptions, SqlParameters, SqlResult, SqlStatement, Transaction, Update, Value, WatchOptions,
} from "./types.js";
import { Watch } from "./watch.js";

/** How to connect; the behaviour of the client. */
export interface ConnectOptions extends Partial<Options> {
  /** The facade's bearer token. */
  readonly token?: string;
  /** Turns values into JSON and back; by default `JSON`, whose integers are exact up to 2^53. */
  readonly json?: JsonCodec;
  /** Instead of the global one. */
  readonly fetch?: typeof fetch;
  /** Time and chance, for tests. */
  readonly surroundings?: Partial<Surroundings>;
}

/** What a transaction may be given besides. */
export interface TransactionOptions extends CallOptions {
  /** Its id, to send it again later or from elsewhere; by default a new one. */
  readonly id?: string;
  /** The last commit time (ms since 1970) at which it may be executed. */
  readonly deadlineMs?: number;
}

/** Return a client of the database behind a facade's address. */
export function connect(url: string, options: ConnectOptions = {}): Client {
  return new Client(url, options);
}

/** A connection to a database. */
export class Client {
  /** What it remembers; `session.seq` is the highest seq it has seen. */
  readonly session: Session;
  readonly #transport: Transport;

  /** Connect when the first request is sent. */
  constructor(url: string, options: ConnectOptions = {}) {
    const { token, json = JSON, fetch: own, surroundings, ...given } = options;
    if (token !== undefined && !/^[\x20-\x7e]+$/.test(token)) throw invalid("A token is printable ASCII.");
    const fetcher: typeof fetch = own ?? ((input, init) => globalThis.fetch(input, init));
    this.#transport = new Transport(url, json, token, fetcher);
    this.session = new Session({ ...DEFAULTS, ...given }, { ...REAL, ...surroundings }, this.#transport);
  }

  /** End all watches and calls. */
  close(): void {
    this.#transport.close();
  }

  /** The value of a key; undefined if it is absent. */
  async get<T = Json>(key: string, options: ReadOptions = {}): Promise<T | undefined> {
    return (await this.entry<T>(key, options)).value;
  }

  /** The value of a key with its version. */
  async entry<T = Json>(key: string, options: ReadOptions = {}): Promise<Entry<T>> {
    return (await this.read<T>([key], options)).entries.get(key) as Entry<T>;
  }

  /** Read keys at one snapshot. */
  async read<T = Json>(keys: Iterable<string>, options: ReadOptions = {}): Promise<Snapshot<T>> {
    const freshness = this.session.freshness(options.consistency, options.at);
    const reading = await read(this.#context(options), [...keys], freshness, options.timeoutS);
    const found = [...reading.entries].map(([key, entry]) => [key, entry ?? absent(key)] as const);
    const entries = new Map(found) as Map<string, Entry<T>>;
    return { seq: reading.seq, entries, get: (key) => entries.get(key)?.value };
  }

  /** The entries of a range at one snapshot, in the order of their keys' UTF-8 bytes. */
  async *scan<T = Json>(prefix = "", options: ScanOptions = {}): AsyncGenerator<Entry<T>, void, void> {
    const freshness = this.session.freshness(options.consistency, options.at);
    const bounds = { prefix, start: options.start, end: options.end };
    const range = new RangeScan(bounds, freshness, options.limit);
    for (;;) {
      const page = await range.page(this.#context(options), options.timeoutS);
      if (!page.length) return;
      yield* page as Entry<T>[];
    }
  }

  /** Execute one statement on SQL tables, as a transaction of its own. */
  async sql(sql: string, params: SqlParameters = [], options: SqlOptions = {}): Promise<SqlResult> {
    const [found] = await this.sqlTransaction([{ sql, params }], options);
    return found!;
  }

  /** Execute statements on SQL tables as one transaction. */
  sqlTransaction(statements: readonly SqlStatement[], options: SqlOptions = {}): Promise<SqlResult[]> {
    const { tables = "main", consistency, at, timeoutS } = options;
    const freshness = this.session.freshness(consistency, at);
    return executeSql(this.#context(options), tables, prepared(statements), freshness, timeoutS);
  }

  /** Store a value. */
  put(key: string, value: Value, options: CallOptions & { ttl_ms?: number } = {}): Promise<Committed> {
    const { ttl_ms, ...rest } = options;
    return this.atomic().put(key, value, ttl_ms === undefined ? {} : { ttl_ms }).commit(rest);
  }

  /** Remove a key, if it is there. */
  delete(key: string, options: CallOptions = {}): Promise<Committed> {
    return this.atomic().delete(key).commit(options);
  }

  /** Execute a transaction; throws `AbortedError` if it aborted. */
  async transaction(transaction: Transaction, options: TransactionOptions = {}): Promise<Committed> {
    const id = options.id ?? this.session.newId();
    const dated = () => this.prepare(transaction, { ...options, id });
    const redated = options.deadlineMs === undefined ? dated : undefined;
    return execute(this.#context(options), dated(), options.timeoutS, options.id === undefined, redated);
  }

  /** Begin a transaction that is put together call by call, then committed. */
  atomic(options: Pick<TransactionOptions, "id" | "deadlineMs"> = {}): Atomic {
    const fresh = options.id === undefined;
    return new Atomic(this, options.id ?? this.session.newId(), options.deadlineMs, fresh);
  }

  /** Return a transaction's bytes, to be sent with `send`. */
  prepare(transaction: Transaction, options: TransactionOptions = {}): Prepared {
    const id = options.id ?? this.session.newId();
    const deadlineMs = options.deadlineMs ?? this.session.deadlineMs(options.timeoutS);
    return prepare(this.#context(options), id, transaction, deadlineMs);
  }

  /** Send a prepared transaction; however often that is done, it is executed once. */
  send(txn: Prepared, options: CallOptions = {}): Promise<Committed> {
    return execute(this.#context(options), txn, options.timeoutS, false);
  }

  /** @internal Send a transaction whose deadline is made here; `fresh`: nobody has sent it before. */
  sendDated(dated: () => Prepared, options: CallOptions, fresh: boolean): Promise<Committed> {
    return execute(this.#context(options), dated(), options.timeoutS, fresh, dated);
  }

  /**
   * Look for the verdict of a transaction that was sent before.
   *
   * If it lacked locks, that of the last attempt with them counts.
   */
  verdict(id: string, options: CallOptions = {}): Promise<Committed> {
    return ask(this.#context(options), { id, payload: "" }, options.timeoutS);
  }

  /**
   * Execute a function as a transaction and return what it returns.
   *
   * It may be called several times, so it must have no effect but by its view. Without writes it is
   * a read-only transaction at its snapshot, and nothing is sent to the log.
   */
  run<T>(
    call: (view: View) => Promise<T> | T,
    options: { consistency?: Consistency; conflictsMax?: number; signal?: AbortSignal } = {},
  ): Promise<T> {
    return run(this.#context(options), call, options.consistency, options.conflictsMax);
  }

  /** Follow the changes of a range of keys, in their order. */
  watch<T = Json>(prefix = "", options: WatchOptions = {}): Watch<T> {
    return new Watch<T>(this.#context(options), prefix, options);
  }

  #context(options: { signal?: AbortSignal }): Context {
    return { transport: this.#transport, session: this.session, signal: options.signal };
  }
}

/**
 * A transaction that is put together call by call.
 *
 * Its id is made at once and its bytes when it is sent first, so that committing it again after an
 * unknown outcome is safe: it is one transaction, however often it is sent.
 */
export class Atomic {
  readonly #client: Client;
  readonly #checks: (Check | RangeCheck)[] = [];
  readonly #reads: (string | { range: Range })[] = [];
  readonly #updates: Update[] = [];

  /** @internal */
  constructor(
    client: Client,
    readonly id: string,
    public deadlineMs: number | undefined,
    private fresh = false,
  ) {
    this.#client = client;
  }

  /** Commit only if all these hold; an entry means that the key still has its version. */
  check(key: string | Entry<unknown>, conditions: Omit<Check, "key"> = {}): this {
    const seen = typeof key === "string" ? { key } : { key: key.key, version: key.version };
    this.#checks.push({ ...seen, ...conditions });
    return this;
  }

  /** Commit only if all these hold of a range. */
  checkRange(range: Range, conditions: Omit<RangeCheck, "range">): this {
    this.#checks.push({ range, ...conditions });
    return this;
  }

  /** Have the verdict give the values of keys after the transaction. */
  read(...keys: string[]): this {
    this.#reads.push(...keys);
    return this;
  }

  /** Have the verdict give the entries of ranges after the transaction. */
  readRange(...ranges: Range[]): this {
    this.#reads.push(...ranges.map((range) => ({ range })));
    return this;
  }

  /** Store a value, until `ttl_ms` after the commit, or for good. */
  put(key: string, value: Value, ends: { ttl_ms?: number } = {}): this {
    return this.#update({ op: "put", key, value, ...ends });
  }

  /** Remove a key. */
  delete(key: string): this {
    return this.#update({ op: "delete", key });
  }

  /** Add to a number, absent is 0; abort if the sum is not within the bounds. */
  add(key: string, by: number, bounds: { min?: number; max?: number } = {}): this {
    return this.#update({ op: "add", key, by, ...bounds });
  }

  /** Keep the larger number. */
  max(key: string, value: number): this {
    return this.#update({ op: "max", key, value });
  }

  /** Keep the smaller number. */
  min(key: string, value: number): this {
    return this.#update({ op: "min", key, value });
  }

  /** Append to a list, absent is empty; with `ttl_ms` the whole list ends so long after. */
  append(key: string, value: Json, ends: { ttl_ms?: number } = {}): this {
    return this.#update({ op: "append", key, value, ...ends });
  }

  /** Let a key end `ttl_ms` after the commit, or never; nothing is done if it is absent. */
  touch(key: string, ends: { ttl_ms?: number } = {}): this {
    return this.#update({ op: "touch", key, ...ends });
  }

  /** Take the next integer of a counter; the verdict's `reads` have it. */
  nextId(key: string): this {
    return this.#update({ op: "next_id", key });
  }

  /** Execute it; throws as `Client.transaction`. */
  async commit(options: CallOptions = {}): Promise<Committed> {
    const parts = { checks: this.#checks, reads: this.#reads, updates: this.#updates };
    const { id, fresh, deadlineMs } = this;
    this.fresh = false;
    if (deadlineMs !== undefined) return this.#client.send(this.#client.prepare(parts, { id, deadlineMs }), options);
    const dated = () => {
      this.deadlineMs = this.#client.session.deadlineMs(options.timeoutS);
      return this.#client.prepare(parts, { id, deadlineMs: this.deadlineMs });
    };
    return this.#client.sendDated(dated, options, fresh);
  }

  #update(update: Update): this {
    this.#updates.push(update);
    return this;
  }
}
