// Made of clients/typescript/src/run.ts (1132ae5eba6447524fa8a8a383ff16c2ed06fd65920fbd6baea34e9bad07b0a5): python -m tools.console_client
/**
 * Functions as transactions: reads become version checks, writes become updates.
 *
 * An attempt reads at one snapshot and commits only if every key that it read has its version
 * still, and every range that it scanned its keys. On a conflict the function is called again, at a
 * snapshot that includes what it collided with.
 */
import { CheckFailedError, ClosedError, ConflictError, refusal, SnapshotGoneError, } from "./errors.js";
import { comesTo, rangeChecks, withWrites } from "./ranges.js";
import { absent, checkKey, RangeScan, read, sleep } from "./reads.js";
import { execute, prepare } from "./transactions.js";
/** The view of a function under `run`: a snapshot, and the function's own writes over it. */
export class View {
    /** The seq of the snapshot; undefined before the first read. */
    seq;
    /** The snapshot is not kept any more, so that the attempt is void. */
    lost = false;
    #context;
    #freshness;
    #seen = new Map();
    #writes = new Map();
    #ends = new Map();
    #scans = [];
    #ended = false;
    /** @internal */
    constructor(context, freshness) {
        this.#context = context;
        this.#freshness = freshness;
    }
    /** The value of a key, own writes included; undefined if it is absent. */
    async get(key) {
        return (await this.read([key])).get(key);
    }
    /** The values of keys in one request; undefined for those that are absent. */
    async read(keys) {
        this.#checkOpen();
        const wanted = [...keys];
        const missing = wanted.filter((key) => !this.#seen.has(key) && !this.#writes.has(key));
        if (missing.length)
            await this.#fetch(missing);
        return new Map(wanted.map((key) => [key, structuredClone(this.#value(key))]));
    }
    /** The entries of a range at the snapshot, with what had been written when the scan began. */
    async *scan(prefix = "", options = {}) {
        this.#checkOpen();
        const bounds = { prefix, start: options.start, end: options.end };
        const range = new RangeScan(bounds, this.#place(), options.limit);
        range.own = new Map([...this.#writes].filter(([key]) => comesTo(range, [key])));
        this.#scans.push(range);
        while (!range.ended) {
            this.#checkOpen();
            if (this.seq === undefined)
                await this.#fetch([]);
            const { last, left } = range;
            const unseen = comesTo(range, range.own.keys());
            range.freshness = this.#place();
            let page = await this.#kept(() => range.page(this.#context));
            if (unseen) {
                page = withWrites(range, page, last).slice(0, left);
                range.left = left === undefined ? undefined : left - page.length;
                range.ended = range.whole === true || range.left === 0;
            }
            yield* page;
        }
    }
    /**
     * Store a value when the function has ended; reads see it from now on. The key ends `ttl_ms`
     * after the commit, or never.
     */
    put(key, value, ends = {}) {
        if (value === undefined || value === null)
            throw refusal("null-value");
        this.#write(key, structuredClone(value));
        this.#ends.set(key, { ...ends });
    }
    /** Remove a key when the function has ended. */
    delete(key) {
        this.#write(key, undefined);
    }
    /** @internal Commit what was written, if anything was. */
    async commit() {
        if (!this.#writes.size)
            return;
        const { session } = this.#context;
        const versions = [...this.#seen].map(([key, entry]) => ({ key, version: entry?.version ?? 0 }));
        const checks = [...versions, ...this.#scans.flatMap((scan) => rangeChecks(scan, this.seq ?? 0))];
        const updates = [...this.#writes].map(([key, value]) => value === undefined ? { op: "delete", key } : { op: "put", key, value, ...this.#ends.get(key) });
        const id = session.newId();
        const dated = () => prepare(this.#context, id, { checks, updates }, session.deadlineMs());
        await execute(this.#context, dated(), undefined, true, dated);
    }
    /** @internal Allow nothing more: the function has ended. */
    end() {
        this.#ended = true;
    }
    /** Read keys at the snapshot, which others may have taken meanwhile (as with `Promise.all`). */
    async #fetch(keys) {
        let reading = await this.#kept(() => read(this.#context, keys, this.#place()));
        if (this.seq !== undefined && reading.seq !== this.seq) {
            reading = await this.#kept(() => read(this.#context, keys, this.#place()));
        }
        this.seq = reading.seq;
        for (const [key, entry] of reading.entries)
            this.#seen.set(key, entry);
    }
    async #kept(act) {
        try {
            return await act();
        }
        catch (error) {
            this.lost ||= error instanceof SnapshotGoneError;
            throw error;
        }
    }
    #place() {
        return this.seq === undefined ? this.#freshness : { at: this.seq };
    }
    #value(key) {
        return this.#writes.has(key) ? this.#writes.get(key) : (this.#seen.get(key) ?? absent(key)).value;
    }
    #write(key, value) {
        this.#checkOpen();
        checkKey(key);
        this.#writes.set(key, value);
    }
    #checkOpen() {
        if (this.#ended) {
            throw new ClosedError("The function under run() has ended: use its view only within it.");
        }
    }
}
/** Call a function until it commits; return what it returned. */
export async function run(context, call, consistency, conflictsMax = context.session.options.conflictsMax) {
    const { session } = context;
    const retry = session.retry();
    let freshness = session.freshness(consistency);
    let conflict;
    for (let number = 1; number <= conflictsMax; number += 1) {
        context.signal?.throwIfAborted();
        context.transport.checkOpen();
        const view = new View(context, freshness);
        try {
            const value = await call(view);
            if (!view.lost) {
                conflict = await committed(view);
                if (conflict === undefined)
                    return value;
                freshness = session.floor(session.seq);
            }
        }
        catch (error) {
            if (!view.lost)
                throw error;
        }
        finally {
            view.end();
        }
        if (number < conflictsMax)
            await sleep(context, retry.pauseS());
    }
    const detail = `The function met a conflict in each of ${conflictsMax} calls; nothing was written. ` +
        "Let it do less, or allow more calls (conflictsMax).";
    throw new ConflictError(detail, conflict?.members ?? {}, conflict?.failed ?? [], "precondition-failed");
}
/** Commit; return the conflict that was met, whose seq the session has seen. */
async function committed(view) {
    try {
        await view.commit();
    }
    catch (error) {
        if (error instanceof CheckFailedError)
            return error;
        throw error;
    }
    return undefined;
}
