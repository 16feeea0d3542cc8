/** A client's memory between calls, and its rules for trying again. */

import { type ClientError, RequestError } from "./errors.js";
import { DEADLINE_AHEAD_MS_MAX } from "./tables.js";
import type { Consistency } from "./types.js";

/** The behaviour of a client, unless a call says otherwise. */
export interface Options {
  /** Which state reads show. */
  readonly consistency: Consistency;
  /** How long a call tries what fails for reasons that may pass; it may last 5 s longer. */
  readonly timeoutS: number;
  /** How long a facade may take to answer before it is asked again. */
  readonly attemptS: number;
  /** How often a function under `run` is called. */
  readonly conflictsMax: number;
  /** Mean of the first pause, doubled with each. */
  readonly backoffS: number;
  /** Mean of the longest pauses, which last twice as long at the most. */
  readonly backoffMaxS: number;
  /** How far the brokers' clocks may be ahead of this machine's. */
  readonly clockSkewS: number;
  /** How long `watch` tries to connect again. */
  readonly reconnectS: number;
  /** Entries that a scan asks for at once. */
  readonly pageEntries: number;
  /** Keys that a read asks for at once. */
  readonly readKeys: number;
}

export const DEFAULTS: Options = {
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

/** Time and chance; tests have their own. */
export interface Surroundings {
  /** Seconds of a clock that only goes forward. */
  clock(): number;
  /** The time of day, in ms since 1970. */
  wallMs(): number;
  /** A number in [0, 1). */
  random(): number;
  sleep(seconds: number, signal?: AbortSignal): Promise<void>;
}

export const REAL: Surroundings = {
  clock: () => performance.now() / 1_000,
  wallMs: () => Date.now(),
  random: () => Math.random(),
  sleep: (seconds, signal) =>
    new Promise((resolve, reject) => {
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

/** The state that a read shows: the one at a seq, or one that is new enough. */
export interface Freshness {
  readonly at?: number;
  readonly consistency?: Consistency;
  readonly min_version?: number;
}

/** Time that is left and not divided any more. */
const SHORTEST_S = 0.1;
/** How much longer than its timeout a call may last. */
const LAST_S = 5;
/** Farthest deadline that is set: the log refuses one that is twice as far. */
const AHEAD_S = DEADLINE_AHEAD_MS_MAX / 2_000;

/** What knows of which generation the seqs of a session are. */
export interface History {
  generation: string | undefined;
  onLost: () => void;
}

export class Session {
  /** The highest seq that this client has seen. */
  seq = 0;
  /** How far the time of day is behind commit times, as far as that is known; negative: ahead of them. */
  behindMs = 0;

  constructor(
    readonly options: Options,
    readonly surroundings: Surroundings,
    private readonly history?: History,
  ) {
    if (history) history.onLost = () => (this.seq = 0);
  }

  /** The generation of what was seen; undefined before the first answer. */
  get generation(): string | undefined {
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
  saw(seq: number, tsMs = 0, sentMs?: number, generation?: string): void {
    if (generation !== undefined && this.history) this.history.generation = generation;
    this.seq = Math.max(this.seq, seq);
    if (!tsMs) return;
    const least = tsMs - this.surroundings.wallMs();
    const most = sentMs === undefined ? Infinity : Math.max(least, tsMs - sentMs);
    this.behindMs = Math.min(Math.max(this.behindMs, least), most);
  }

  /** The deadline of a transaction that is tried for so long from now on. */
  deadlineMs(timeoutS = this.options.timeoutS): number {
    const aheadS = Math.min(timeoutS + LAST_S + this.options.clockSkewS, AHEAD_S);
    return this.surroundings.wallMs() + this.behindMs + Math.trunc(1_000 * aheadS);
  }

  /** Which state a read shall show. */
  freshness(consistency?: Consistency, at?: number): Freshness {
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
  floor(seq: number): Freshness {
    return seq < 1 ? { consistency: "snapshot" } : { consistency: "session", min_version: seq };
  }

  /** Begin to try something. */
  retry(timeoutS = this.options.timeoutS): Retry {
    return new Retry(this, timeoutS);
  }

  /** A fresh id that holds the present time: a UUID of version 7 (RFC 9562). */
  newId(): string {
    const time = this.surroundings.wallMs().toString(16).padStart(12, "0");
    const bytes = new Uint8Array(10);
    if (globalThis.crypto === undefined) {
      bytes.forEach((_, at) => (bytes[at] = Math.random() * 256)); // Node 18 has it not yet
    } else {
      globalThis.crypto.getRandomValues(bytes);
    }
    bytes[0] = 0x70 | (bytes[0]! & 0x0f);
    bytes[2] = 0x80 | (bytes[2]! & 0x3f);
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
  readonly #until: number;
  #pauses = 0;

  constructor(
    readonly session: Session,
    timeoutS: number,
  ) {
    this.#until = session.surroundings.clock() + timeoutS;
  }

  /** How much time is left. */
  leftS(): number {
    return Math.max(0, this.#until - this.session.surroundings.clock());
  }

  /** How long the next attempt may take: a part of what is left. */
  waitS(): number {
    return Math.min(this.leftS(), this.session.options.attemptS);
  }

  /** The pause before the next attempt; undefined to give up. */
  again(fault?: ClientError): number | undefined {
    const left = this.leftS();
    if (!left) return undefined;
    const asked = fault?.retryAfterS ?? 0;
    const pause = asked + this.pauseS();
    if (pause < left) return pause;
    return asked < left / 2 && left > SHORTEST_S ? left / 2 : left;
  }

  /** The length of the next pause. */
  pauseS(): number {
    const { backoffS, backoffMaxS } = this.session.options;
    const mean = Math.min(backoffMaxS, backoffS * 2 ** Math.min(this.#pauses, 30));
    this.#pauses += 1;
    return 2 * mean * this.session.surroundings.random();
  }
}

/** The error of an argument that makes no sense. */
export function invalid(detail: string): RequestError {
  return new RequestError("invalid-parameter", 400, detail);
}
