// Made of clients/typescript/src/client.ts (d925c66aeaa5fc5619fdd4538c7d38df8a1a353fa2315790ac3f3a73895521e2): python -m tools.console_client
/** The client: its public methods. */
import { Transport } from "./http.js";
import { absent, RangeScan, read } from "./reads.js";
import { run } from "./run.js";
import { DEFAULTS, invalid, REAL, Session } from "./session.js";
import { executeSql, prepared } from "./statements.js";
import { ask, execute, prepare } from "./transactions.js";
import { Watch } from "./watch.js";
/** Return a client of the database behind a facade's address. */
export function connect(url, options = {}) {
    return new Client(url, options);
}
/** A connection to a database. */
export class Client {
    /** What it remembers; `session.seq` is the highest seq it has seen. */
    session;
    #transport;
    /** Connect when the first request is sent. */
    constructor(url, options = {}) {
        const { token, json = JSON, fetch: own, surroundings, ...given } = options;
        if (token !== undefined && !/^[\x20-\x7e]+$/.test(token))
            throw invalid("A token is printable ASCII.");
        const fetcher = own ?? ((input, init) => globalThis.fetch(input, init));
        this.#transport = new Transport(url, json, token, fetcher);
        this.session = new Session({ ...DEFAULTS, ...given }, { ...REAL, ...surroundings }, this.#transport);
    }
    /** End all watches and calls. */
    close() {
        this.#transport.close();
    }
    /** The value of a key; undefined if it is absent. */
    async get(key, options = {}) {
        return (await this.entry(key, options)).value;
    }
    /** The value of a key with its version. */
    async entry(key, options = {}) {
        return (await this.read([key], options)).entries.get(key);
    }
    /** Read keys at one snapshot. */
    async read(keys, options = {}) {
        const freshness = this.session.freshness(options.consistency, options.at);
        const reading = await read(this.#context(options), [...keys], freshness, options.timeoutS);
        const found = [...reading.entries].map(([key, entry]) => [key, entry ?? absent(key)]);
        const entries = new Map(found);
        return { seq: reading.seq, entries, get: (key) => entries.get(key)?.value };
    }
    /** The entries of a range at one snapshot, in the order of their keys' UTF-8 bytes. */
    async *scan(prefix = "", options = {}) {
        const freshness = this.session.freshness(options.consistency, options.at);
        const bounds = { prefix, start: options.start, end: options.end };
        const range = new RangeScan(bounds, freshness, options.limit);
        for (;;) {
            const page = await range.page(this.#context(options), options.timeoutS);
            if (!page.length)
                return;
            yield* page;
        }
    }
    /** Execute one statement on SQL tables, as a transaction of its own. */
    async sql(sql, params = [], options = {}) {
        const [found] = await this.sqlTransaction([{ sql, params }], options);
        return found;
    }
    /** Execute statements on SQL tables as one transaction. */
    sqlTransaction(statements, options = {}) {
        const { tables = "main", consistency, at, timeoutS } = options;
        const freshness = this.session.freshness(consistency, at);
        return executeSql(this.#context(options), tables, prepared(statements), freshness, timeoutS);
    }
    /** Store a value. */
    put(key, value, options = {}) {
        const { ttl_ms, ...rest } = options;
        return this.atomic().put(key, value, ttl_ms === undefined ? {} : { ttl_ms }).commit(rest);
    }
    /** Remove a key, if it is there. */
    delete(key, options = {}) {
        return this.atomic().delete(key).commit(options);
    }
    /** Execute a transaction; throws `AbortedError` if it aborted. */
    async transaction(transaction, options = {}) {
        const id = options.id ?? this.session.newId();
        const dated = () => this.prepare(transaction, { ...options, id });
        const redated = options.deadlineMs === undefined ? dated : undefined;
        return execute(this.#context(options), dated(), options.timeoutS, options.id === undefined, redated);
    }
    /** Begin a transaction that is put together call by call, then committed. */
    atomic(options = {}) {
        const fresh = options.id === undefined;
        return new Atomic(this, options.id ?? this.session.newId(), options.deadlineMs, fresh);
    }
    /** Return a transaction's bytes, to be sent with `send`. */
    prepare(transaction, options = {}) {
        const id = options.id ?? this.session.newId();
        const deadlineMs = options.deadlineMs ?? this.session.deadlineMs(options.timeoutS);
        return prepare(this.#context(options), id, transaction, deadlineMs);
    }
    /** Send a prepared transaction; however often that is done, it is executed once. */
    send(txn, options = {}) {
        return execute(this.#context(options), txn, options.timeoutS, false);
    }
    /** @internal Send a transaction whose deadline is made here; `fresh`: nobody has sent it before. */
    sendDated(dated, options, fresh) {
        return execute(this.#context(options), dated(), options.timeoutS, fresh, dated);
    }
    /**
     * Look for the verdict of a transaction that was sent before.
     *
     * If it lacked locks, that of the last attempt with them counts.
     */
    verdict(id, options = {}) {
        return ask(this.#context(options), { id, payload: "" }, options.timeoutS);
    }
    /**
     * Execute a function as a transaction and return what it returns.
     *
     * It may be called several times, so it must have no effect but by its view. Without writes it is
     * a read-only transaction at its snapshot, and nothing is sent to the log.
     */
    run(call, options = {}) {
        return run(this.#context(options), call, options.consistency, options.conflictsMax);
    }
    /** Follow the changes of a range of keys, in their order. */
    watch(prefix = "", options = {}) {
        return new Watch(this.#context(options), prefix, options);
    }
    #context(options) {
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
    id;
    deadlineMs;
    fresh;
    #client;
    #checks = [];
    #reads = [];
    #updates = [];
    /** @internal */
    constructor(client, id, deadlineMs, fresh = false) {
        this.id = id;
        this.deadlineMs = deadlineMs;
        this.fresh = fresh;
        this.#client = client;
    }
    /** Commit only if all these hold; an entry means that the key still has its version. */
    check(key, conditions = {}) {
        const seen = typeof key === "string" ? { key } : { key: key.key, version: key.version };
        this.#checks.push({ ...seen, ...conditions });
        return this;
    }
    /** Commit only if all these hold of a range. */
    checkRange(range, conditions) {
        this.#checks.push({ range, ...conditions });
        return this;
    }
    /** Have the verdict give the values of keys after the transaction. */
    read(...keys) {
        this.#reads.push(...keys);
        return this;
    }
    /** Have the verdict give the entries of ranges after the transaction. */
    readRange(...ranges) {
        this.#reads.push(...ranges.map((range) => ({ range })));
        return this;
    }
    /** Store a value, until `ttl_ms` after the commit, or for good. */
    put(key, value, ends = {}) {
        return this.#update({ op: "put", key, value, ...ends });
    }
    /** Remove a key. */
    delete(key) {
        return this.#update({ op: "delete", key });
    }
    /** Add to a number, absent is 0; abort if the sum is not within the bounds. */
    add(key, by, bounds = {}) {
        return this.#update({ op: "add", key, by, ...bounds });
    }
    /** Keep the larger number. */
    max(key, value) {
        return this.#update({ op: "max", key, value });
    }
    /** Keep the smaller number. */
    min(key, value) {
        return this.#update({ op: "min", key, value });
    }
    /** Append to a list, absent is empty; with `ttl_ms` the whole list ends so long after. */
    append(key, value, ends = {}) {
        return this.#update({ op: "append", key, value, ...ends });
    }
    /** Let a key end `ttl_ms` after the commit, or never; nothing is done if it is absent. */
    touch(key, ends = {}) {
        return this.#update({ op: "touch", key, ...ends });
    }
    /** Take the next integer of a counter; the verdict's `reads` have it. */
    nextId(key) {
        return this.#update({ op: "next_id", key });
    }
    /** Execute it; throws as `Client.transaction`. */
    async commit(options = {}) {
        const parts = { checks: this.#checks, reads: this.#reads, updates: this.#updates };
        const { id, fresh, deadlineMs } = this;
        this.fresh = false;
        if (deadlineMs !== undefined)
            return this.#client.send(this.#client.prepare(parts, { id, deadlineMs }), options);
        const dated = () => {
            this.deadlineMs = this.#client.session.deadlineMs(options.timeoutS);
            return this.#client.prepare(parts, { id, deadlineMs: this.deadlineMs });
        };
        return this.#client.sendDated(dated, options, fresh);
    }
    #update(update) {
        this.#updates.push(update);
        return this;
    }
}
