/** What the client throws: `ClientError`, and below it one class for each way to fail. */

import { ABORTED, PROBLEMS, REJECTED } from "./tables.js";
import type { Committed, Json } from "./types.js";

export type ProblemType = keyof typeof PROBLEMS;
export type AbortCode = keyof typeof ABORTED;

/** Base of all that the client throws, but for the reason of an abort signal. */
export class ClientError extends Error {
  override name = this.constructor.name;
  /** The same request may succeed a moment later; the client has tried that already. */
  retriable = false;
  /** A transaction that was sent may have been appended nevertheless. */
  uncertain = false;
  /** How long the other side asks to be left alone. */
  retryAfterS = 0;
}

/** The client was closed, or the view belongs to a function that has ended. */
export class ClosedError extends ClientError {}

/** A function under `run` wrote, and scanned a range without end or the database's own keys. */
export class UnsafeScanError extends ClientError {}

/** No connection could be made; nothing was sent. */
export class NotConnectedError extends ClientError {
  constructor(detail: string, options: { retriable?: boolean; cause?: unknown } = {}) {
    super(detail, { cause: options.cause });
    this.retriable = options.retriable ?? true;
  }
}

/** The connection broke, or no answer came in time. */
export class ConnectionLostError extends ClientError {
  override retriable = true;
  override uncertain = true;
}

const HURRIED = new Set([408, 425, 429]);

/** The answer does not come from a facade, but perhaps from a proxy in between. */
export class UnexpectedAnswerError extends ClientError {
  constructor(
    detail: string,
    readonly status: number,
  ) {
    super(detail);
    this.retriable = status >= 500 || HURRIED.has(status);
    this.uncertain = this.retriable || status < 300;
  }
}

/** A transaction may be in the log, and its verdict did not come in time. */
export class OutcomeUnknownError extends ClientError {
  override uncertain = true;

  constructor(
    readonly id: string,
    readonly payload: string,
    /** Looks for the verdict again: returns or throws as the first call would have. */
    readonly ask: () => Promise<Committed>,
    /** Sends the same bytes again, which has the effect of sending them once; without bytes, asks. */
    readonly sendAgain: () => Promise<Committed>,
    cause?: unknown,
  ) {
    super(
      `the verdict of transaction ${id} did not come in time: it may be committed or aborted ` +
        "later, or never have been appended; ask again, or send the same bytes again",
      { cause },
    );
  }
}

export type Members = Readonly<Record<string, Json>>;

/** The request was refused: a problem of the facade; `type` says which. */
export class RequestError extends ClientError {
  /** The reason code of the verdict, if there is one. */
  readonly code: string | undefined;
  /** The transaction's id, if there is one. */
  readonly id: string | undefined;

  constructor(
    /** The problem type: a name of the facade's table, `/problems` describes it. */
    readonly type: ProblemType | (string & {}),
    readonly status: number,
    /** What happened and what to do. */
    readonly detail: string,
    /** All further members of the answer. */
    readonly members: Members = {},
    retryAfterS = 0,
  ) {
    super(`${text(members["code"]) ?? (type || status)}: ${detail}`);
    this.code = text(members["code"]);
    this.id = text(members["id"]);
    this.retryAfterS = retryAfterS;
    const known = isProblemType(type) ? PROBLEMS[type] : undefined;
    this.retriable = known ? known.retriable : PASSING.has(status);
    this.uncertain = known ? known.uncertain : status >= 500;
  }

  /** Tells a problem type from others, with its type. */
  is(type: ProblemType): boolean {
    return this.type === type;
  }
}

/** Statuses of unknown problems after which the same request may succeed. */
const PASSING = new Set([429, 502, 503, 504]);

/** The transaction was not executed, and will not be: it came to the log after its deadline. */
export class DeadlinePassedError extends RequestError {}

/**
 * The database was restored or forked since: what this client had seen is of another history. It has
 * forgotten its session; the next call is one of the present history.
 */
export class OtherGenerationError extends RequestError {}

/** The snapshot is older than what the read model keeps. */
export class SnapshotGoneError extends RequestError {}

/** A check that did not hold, or the update that could not be made. */
export interface FailedCheck {
  readonly check: "assert" | "check" | "update" | "constraint" | "lock" | "range";
  readonly index: number;
  readonly key: string;
  /** The key's actual value; null if it was absent or is left out. */
  readonly value: Json;
  /** The key's actual version; 0 if it was absent. */
  readonly version: number;
  readonly truncated?: boolean;
  readonly constraint?: string;
  readonly violated?: string;
  /** How many keys a range has. */
  readonly count?: number;
}

/** The transaction was executed and aborted: nothing was written. */
export class AbortedError extends RequestError {
  declare readonly code: AbortCode | (string & {}) | undefined;
  /** The transaction's place in the order; 0 if it is not known. */
  readonly seq: number;
  /** Why its call aborted. */
  readonly reason: string | undefined;

  constructor(
    detail: string,
    members: Members,
    readonly failed: readonly FailedCheck[] = [],
    type: ProblemType = "aborted",
    retryAfterS = 0,
  ) {
    super(type, PROBLEMS[type].status, detail, members, retryAfterS);
    this.seq = typeof members["seq"] === "number" ? members["seq"] : 0;
    this.reason = text(members["reason"]);
  }
}

/** A check or assert does not hold; `failed` lists those that do not. */
export class CheckFailedError extends AbortedError {}

/** A function under `run` met a conflict in every attempt it was allowed. */
export class ConflictError extends CheckFailedError {}

/** A constraint does not allow what would be written; `failed` names it. */
export class ConstraintViolatedError extends AbortedError {}

/** Return the error of a problem document. */
export function problem(
  type: string,
  status: number,
  detail: string,
  members: Members,
  retryAfterS = 0,
): RequestError {
  switch (type) {
    case "aborted":
      return new AbortedError(detail, members, [], type, retryAfterS);
    case "precondition-failed":
      return new CheckFailedError(detail, members, [], type, retryAfterS);
    case "constraint-violated":
      return new ConstraintViolatedError(detail, members, [], type, retryAfterS);
    case "deadline-passed":
      return new DeadlinePassedError(type, status, detail, members, retryAfterS);
    case "other-generation":
      return new OtherGenerationError(type, status, detail, members, retryAfterS);
    case "snapshot-gone":
      return new SnapshotGoneError(type, status, detail, members, retryAfterS);
    default:
      return new RequestError(type, status, detail, members, retryAfterS);
  }
}

/** Return the error of a record that was, or would be, rejected with a reason code. */
export function refusal(code: string, detail?: string, id?: string): RequestError {
  const known = Object.hasOwn(REJECTED, code) ? REJECTED[code as keyof typeof REJECTED] : undefined;
  const type = known?.problem ?? "invalid-transaction";
  const members = id === undefined ? { code } : { code, id };
  return problem(type, PROBLEMS[type].status, detail ?? known?.when ?? code, members);
}

/** Return the error of a verdict `aborted`. */
export function abort(
  code: string,
  failed: readonly FailedCheck[],
  members: Members,
): AbortedError {
  const said = Object.hasOwn(ABORTED, code) ? ABORTED[code as AbortCode] : code;
  const keys = failed.slice(0, 3).map((entry) => JSON.stringify(entry.key));
  const more = failed.length > 3 ? ", …" : "";
  const reason = text(members["reason"]);
  const detail =
    said + (keys.length ? ` (keys: ${keys.join(", ")}${more})` : "") + (reason ? ` (reason: ${reason})` : "");
  if (code === "check-failed") {
    return new CheckFailedError(detail, members, failed, "precondition-failed");
  }
  if (code === "constraint-violated") {
    return new ConstraintViolatedError(detail, members, failed, "constraint-violated");
  }
  return new AbortedError(detail, members, failed);
}

function isProblemType(type: string): type is ProblemType {
  return Object.hasOwn(PROBLEMS, type);
}

function text(value: Json | undefined): string | undefined {
  return typeof value === "string" ? value : undefined;
}
