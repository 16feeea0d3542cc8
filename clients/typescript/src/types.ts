/** The data that calls take and give. */

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };
/** What can be stored: JSON but null. */
export type Value = Exclude<Json, null>;
/** Which state a read shows. */
export type Consistency = "strong" | "session" | "snapshot";

/** What every call may be given. */
export interface CallOptions {
  /** How long to try what fails for reasons that may pass. */
  readonly timeoutS?: number;
  /** Gives up at once; the call throws the signal's reason. */
  readonly signal?: AbortSignal;
}

/** What reads may be given. */
export interface ReadOptions extends CallOptions {
  /** The seq whose state to show, instead of a fresh one. */
  readonly at?: number;
  readonly consistency?: Consistency;
}

/** Which keys a scan covers. */
export interface ScanOptions extends ReadOptions {
  /** Only keys from it on. */
  readonly start?: string;
  /** Only keys before it. */
  readonly end?: string;
  /** Most entries; by default all. */
  readonly limit?: number;
}

/** A key at a snapshot. */
export interface Entry<T = Json> {
  readonly key: string;
  /** Undefined if the key is absent. */
  readonly value: T | undefined;
  /** The seq of the transaction that wrote it; 0 if it is absent. */
  readonly version: number;
  /** The commit time of that transaction, in ms since 1970. */
  readonly tsMs: number;
  /** The commit time from which on the key is absent; not there if it has no end. */
  readonly expiresMs?: number;
}

/** Keys that were read together. */
export interface Snapshot<T = Json> {
  /** The transaction after which this was the state. */
  readonly seq: number;
  readonly entries: ReadonlyMap<string, Entry<T>>;
  /** The value of a key that was asked for. */
  get(key: string): T | undefined;
}

/** The keys that begin with a prefix, or those from `start` up to `end`, without it. */
export type Range =
  | { readonly prefix: string; readonly start?: never; readonly end?: never }
  | { readonly start: string; readonly end: string; readonly prefix?: never };

/** A range that a transaction has read, in the order of the keys' UTF-8 bytes, after its own updates. */
export interface RangeRead {
  readonly range: Range;
  readonly entries: readonly { readonly key: string; readonly value: Json; readonly version: number }[];
}

/** A verdict: the transaction is committed. */
export interface Committed {
  readonly id: string;
  /** Its place in the order, and the version of all that it wrote. */
  readonly seq: number;
  readonly tsMs: number;
  /** The values that it read, after its own updates; null for absent keys. */
  readonly reads: Readonly<Record<string, Json>>;
  /** The ranges that it read, each once. */
  readonly ranges: readonly RangeRead[];
  /** It was sent before, and this is the verdict of then. */
  readonly repeated: boolean;
  /** What its call returned. */
  readonly returned: Json;
}

/** A condition on a range of keys before a transaction. */
export interface RangeCheck {
  readonly range: Range;
  /** It has keys, or none. */
  readonly exists?: boolean;
  /** How many keys it has. */
  readonly count?: number;
  readonly count_le?: number;
  readonly count_ge?: number;
  /** No key in it has a higher version. */
  readonly version_le?: number;
}

/** A condition on a key before a transaction. */
export interface Check {
  readonly key: string;
  readonly version?: number;
  readonly exists?: boolean;
  readonly eq?: Json;
  readonly ne?: Json;
  readonly lt?: number | string;
  readonly le?: number | string;
  readonly gt?: number | string;
  readonly ge?: number | string;
}

/** What a transaction does to a key. */
export type Update =
  | { readonly op: "put"; readonly key: string; readonly value: Value; readonly ttl_ms?: number }
  | { readonly op: "delete"; readonly key: string }
  | { readonly op: "add"; readonly key: string; readonly by: number; readonly min?: number; readonly max?: number }
  | { readonly op: "max" | "min"; readonly key: string; readonly value: number }
  | { readonly op: "append"; readonly key: string; readonly value: Json; readonly ttl_ms?: number }
  | { readonly op: "next_id"; readonly key: string }
  | { readonly op: "touch"; readonly key: string; readonly ttl_ms?: number };

/** A call of a stored procedure, with its keys. */
export interface Call {
  readonly procedure: string;
  readonly args?: { readonly [name: string]: Json };
  readonly keys?: readonly string[];
  readonly reads?: readonly string[];
  readonly ranges?: readonly Range[];
}

/** A key of the index behind uniqueness, or a range whose keys a constraint counts. */
export type Lock = string | { readonly range: Range };

/** A transaction, as docs/semantics.md has it. */
export interface Transaction {
  readonly asserts?: { readonly [key: string]: Json };
  readonly checks?: readonly (Check | RangeCheck)[];
  readonly reads?: readonly (string | { readonly range: Range })[];
  readonly updates?: readonly Update[];
  readonly call?: Call;
  readonly locks?: readonly Lock[];
}

/** The values of `?` or `$1`; by name those of `$name`. */
export type SqlParameters = readonly Json[] | { readonly [name: string]: Json };

/** A statement, alone or with the values of its parameters. */
export type SqlStatement = string | { readonly sql: string; readonly params?: SqlParameters };

/** Which tables statements mean, and which state they read. */
export interface SqlOptions extends ReadOptions {
  /** The name of the tables, a part of their keys; by default `main`. */
  readonly tables?: string;
}

/** The rows of a statement, and how many it wrote. */
export interface SqlResult {
  /** The transaction, or the state that was read. */
  readonly seq: number;
  readonly columns: readonly { readonly name: string; readonly type: string }[];
  readonly rows: readonly (readonly Json[])[];
  /** How many rows were written; undefined if the statement writes none. */
  readonly changed: number | undefined;
}

/** A check without its key. */
export type Condition = Omit<Check, "key">;

/** Which changes a watch gives; it begins after `since`, by default now. */
export interface WatchOptions {
  /** Only keys from it on. */
  readonly start?: string;
  /** Only keys before it. */
  readonly end?: string;
  /** A check of the value after a change: `{ ge: 100 }`. */
  readonly where?: Condition;
  /** A check of the value before it. */
  readonly whereBefore?: Omit<Condition, "version">;
  readonly since?: number;
  readonly signal?: AbortSignal;
}

/** A write of a committed transaction. */
export interface Change<T = Json> {
  readonly key: string;
  /** c (created), u (updated) or d (deleted). */
  readonly op: "c" | "u" | "d";
  /** Undefined if it was absent. */
  readonly before: T | undefined;
  /** Undefined if it was deleted. */
  readonly value: T | undefined;
  /** The transaction, and the key's version from then on. */
  readonly seq: number;
  /** Which of the transaction's changes it is, from 1. */
  readonly number: number;
  readonly tsMs: number;
  readonly txnId: string;
  /** The commit time from which on the key is absent; not there if it has no end. */
  readonly expiresMs?: number;
}
