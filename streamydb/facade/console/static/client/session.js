// Made of clients/typescript/src/session.ts (b2187b886cf6b6e8bea8c52be48ae0fc2b922f0a6ef32d9907c1c364996a5f95): python -m tools.console_client
/** A client's memory between calls, and its rules for trying again. */
import { RequestError } from "./errors.js";
import { DEADLINE_AHEAD_MS_MAX } from "./tables.js";
export const DEFAULTS = {
    consistency: "strong",
    timeoutS: 30,
    attemptS: 10,
    conflictsMax: 30,
    backoffS: 0.02,
    backoffMaxS: 0.5,
    clockSkewS: 30,
    reconnectS: 120,
    pageEntries: 500,
    readKeys: 1_000,
};
export const REAL = {
    clock: () => performance.now() / 1_000,
    wallMs: () => Date.now(),
    random: () => Math.random(),
    sleep: (seconds, signal) => new Promise((resolve, reject) => {
        signal?.throwIfAborted();
        const ended = () => {
            clearTimeout(timer);
            reject(signal?.reason);
        };
        const timer = setTimeout(() => {
            signal?.removeEventListener("abort", ended);
            resolve();
        }, seconds * 1_000);
        signal?.addEventListener("abort", ended, { once: true });
    }),
};
/** Time that is left and not divided any more. */
const SHORTEST_S = 0.1;
/** How much longer than its timeout a call may last. */
const LAST_S = 5;
/** Farthest deadline that is set: the log refuses one that is twice as far. */
const AHEAD_S = DEADLINE_AHEAD_MS_MAX / 2_000;
export class Session {
    options;
    surroundings;
    history;
    /** The highest seq that this client has seen. */
    seq = 0;
    /** How far the time of day is behind commit times, as far as that is known; negative: ahead of them. */
    behindMs = 0;
    constructor(options, surroundings, history) {
        this.options = options;
        this.surroundings = surroundings;
        this.history = history;
        if (history)
            history.onLost = () => (this.seq = 0);
    }
    /** The generation of what was seen; undefined before the first answer. */
    get generation() {
        return this.history?.generation;
    }
    /**
     * Remember that something as of a seq was seen, and its commit time, if that is known.
     *
     * `sentMs`: the time of day when it was sent, if that was now and this is the verdict of what was
     * sent. The commit time lies between then and now, by the brokers' clock. Else it may be old, and
     * only says that the brokers' clock is not behind it. `generation`: the one that the session of
     * another process had.
     */
    saw(seq, tsMs = 0, sentMs, generation) {
        if (generation !== undefined && this.history)
            this.history.generation = generation;
        this.seq = Math.max(this.seq, seq);
        if (!tsMs)
            return;
        const least = tsMs - this.surroundings.wallMs();
        const most = sentMs === undefined ? Infinity : Math.max(least, tsMs - sentMs);
        this.behindMs = Math.min(Math.max(this.behindMs, least), most);
    }
    /** The deadline of a transaction that is tried for so long from now on. */
    deadlineMs(timeoutS = this.options.timeoutS) {
        const aheadS = Math.min(timeoutS + LAST_S + this.options.clockSkewS, AHEAD_S);
        return this.surroundings.wallMs() + this.behindMs + Math.trunc(1_000 * aheadS);
    }
    /** Which state a read shall show. */
    freshness(consistency, at) {
        if (at !== undefined) {
            if (!Number.isSafeInteger(at) || at < 0 || (consistency ?? "snapshot") !== "snapshot") {
                throw invalid("`at` is a seq, and leaves no choice of consistency.");
            }
            return { at };
        }
        const wanted = consistency ?? this.options.consistency;
        return wanted === "session" ? this.floor(this.seq) : { consistency: wanted };
    }
    /** Ask for a state that includes a seq; any will do if there is none. */
    floor(seq) {
        return seq < 1 ? { consistency: "snapshot" } : { consistency: "session", min_version: seq };
    }
    /** Begin to try something. */
    retry(timeoutS = this.options.timeoutS) {
        return new Retry(this, timeoutS);
    }
    /** A fresh id that holds the present time: a UUID of version 7 (RFC 9562). */
    newId() {
        const time = this.surroundings.wallMs().toString(16).padStart(12, "0");
        const bytes = new Uint8Array(10);
        if (globalThis.crypto === undefined) {
            bytes.forEach((_, at) => (bytes[at] = Math.random() * 256)); // Node 18 has it not yet
        }
        else {
            globalThis.crypto.getRandomValues(bytes);
        }
        bytes[0] = 0x70 | (bytes[0] & 0x0f);
        bytes[2] = 0x80 | (bytes[2] & 0x3f);
        const hex = time + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
        return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
    }
}
/**
 * Decides whether to try again, and after which pause: exponential, with full jitter.
 *
 * Only the time decides, never the number of attempts. Towards the end the pauses grow short, so
 * that all of the time is used, and the last one ends when the time does.
 */
export class Retry {
    session;
    #until;
    #pauses = 0;
    constructor(session, timeoutS) {
        this.session = session;
        this.#until = session.surroundings.clock() + timeoutS;
    }
    /** How much time is left. */
    leftS() {
        return Math.max(0, this.#until - this.session.surroundings.clock());
    }
    /** How long the next attempt may take: a part of what is left. */
    waitS() {
        return Math.min(this.leftS(), this.session.options.attemptS);
    }
    /** The pause before the next attempt; undefined to give up. */
    again(fault) {
        const left = this.leftS();
        if (!left)
            return undefined;
        const asked = fault?.retryAfterS ?? 0;
        const pause = asked + this.pauseS();
        if (pause < left)
            return pause;
        return asked < left / 2 && left > SHORTEST_S ? left / 2 : left;
    }
    /** The length of the next pause. */
    pauseS() {
        const { backoffS, backoffMaxS } = this.session.options;
        const mean = Math.min(backoffMaxS, backoffS * 2 ** Math.min(this.#pauses, 30));
        this.#pauses += 1;
        return 2 * mean * this.session.surroundings.random();
    }
}
/** The error of an argument that makes no sense. */
export function invalid(detail) {
    return new RequestError("invalid-parameter", 400, detail);
}
