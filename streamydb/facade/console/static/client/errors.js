// Made of clients/typescript/src/errors.ts (a18279791811bddea15933165ed5ca6cb45f00e3a7eaa0a3bf7c4b4741d7d95c): python -m tools.console_client
/** What the client throws: `ClientError`, and below it one class for each way to fail. */
import { ABORTED, PROBLEMS, REJECTED } from "./tables.js";
/** Base of all that the client throws, but for the reason of an abort signal. */
export class ClientError extends Error {
    name = this.constructor.name;
    /** The same request may succeed a moment later; the client has tried that already. */
    retriable = false;
    /** A transaction that was sent may have been appended nevertheless. */
    uncertain = false;
    /** How long the other side asks to be left alone. */
    retryAfterS = 0;
}
/** The client was closed, or the view belongs to a function that has ended. */
export class ClosedError extends ClientError {
}
/** A function under `run` wrote, and scanned a range without end or the database's own keys. */
export class UnsafeScanError extends ClientError {
}
/** No connection could be made; nothing was sent. */
export class NotConnectedError extends ClientError {
    constructor(detail, options = {}) {
        super(detail, { cause: options.cause });
        this.retriable = options.retriable ?? true;
    }
}
/** The connection broke, or no answer came in time. */
export class ConnectionLostError extends ClientError {
    retriable = true;
    uncertain = true;
}
const HURRIED = new Set([408, 425, 429]);
/** The answer does not come from a facade, but perhaps from a proxy in between. */
export class UnexpectedAnswerError extends ClientError {
    status;
    constructor(detail, status) {
        super(detail);
        this.status = status;
        this.retriable = status >= 500 || HURRIED.has(status);
        this.uncertain = this.retriable || status < 300;
    }
}
/** A transaction may be in the log, and its verdict did not come in time. */
export class OutcomeUnknownError extends ClientError {
    id;
    payload;
    ask;
    sendAgain;
    uncertain = true;
    constructor(id, payload, 
    /** Looks for the verdict again: returns or throws as the first call would have. */
    ask, 
    /** Sends the same bytes again, which has the effect of sending them once; without bytes, asks. */
    sendAgain, cause) {
        super(`the verdict of transaction ${id} did not come in time: it may be committed or aborted ` +
            "later, or never have been appended; ask again, or send the same bytes again", { cause });
        this.id = id;
        this.payload = payload;
        this.ask = ask;
        this.sendAgain = sendAgain;
    }
}
/** The request was refused: a problem of the facade; `type` says which. */
export class RequestError extends ClientError {
    type;
    status;
    detail;
    members;
    /** The reason code of the verdict, if there is one. */
    code;
    /** The transaction's id, if there is one. */
    id;
    constructor(
    /** The problem type: a name of the facade's table, `/problems` describes it. */
    type, status, 
    /** What happened and what to do. */
    detail, 
    /** All further members of the answer. */
    members = {}, retryAfterS = 0) {
        super(`${text(members["code"]) ?? (type || status)}: ${detail}`);
        this.type = type;
        this.status = status;
        this.detail = detail;
        this.members = members;
        this.code = text(members["code"]);
        this.id = text(members["id"]);
        this.retryAfterS = retryAfterS;
        const known = isProblemType(type) ? PROBLEMS[type] : undefined;
        this.retriable = known ? known.retriable : PASSING.has(status);
        this.uncertain = known ? known.uncertain : status >= 500;
    }
    /** Tells a problem type from others, with its type. */
    is(type) {
        return this.type === type;
    }
}
/** Statuses of unknown problems after which the same request may succeed. */
const PASSING = new Set([429, 502, 503, 504]);
/** The transaction was not executed, and will not be: it came to the log after its deadline. */
export class DeadlinePassedError extends RequestError {
}
/**
 * The database was restored or forked since: what this client had seen is of another history. It has
 * forgotten its session; the next call is one of the present history.
 */
export class OtherGenerationError extends RequestError {
}
/** The snapshot is older than what the read model keeps. */
export class SnapshotGoneError extends RequestError {
}
/** The transaction was executed and aborted: nothing was written. */
export class AbortedError extends RequestError {
    failed;
    /** The transaction's place in the order; 0 if it is not known. */
    seq;
    /** Why its call aborted. */
    reason;
    constructor(detail, members, failed = [], type = "aborted", retryAfterS = 0) {
        super(type, PROBLEMS[type].status, detail, members, retryAfterS);
        this.failed = failed;
        this.seq = typeof members["seq"] === "number" ? members["seq"] : 0;
        this.reason = text(members["reason"]);
    }
}
/** A check or assert does not hold; `failed` lists those that do not. */
export class CheckFailedError extends AbortedError {
}
/** A function under `run` met a conflict in every attempt it was allowed. */
export class ConflictError extends CheckFailedError {
}
/** A constraint does not allow what would be written; `failed` names it. */
export class ConstraintViolatedError extends AbortedError {
}
/** Return the error of a problem document. */
export function problem(type, status, detail, members, retryAfterS = 0) {
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
export function refusal(code, detail, id) {
    const known = Object.hasOwn(REJECTED, code) ? REJECTED[code] : undefined;
    const type = known?.problem ?? "invalid-transaction";
    const members = id === undefined ? { code } : { code, id };
    return problem(type, PROBLEMS[type].status, detail ?? known?.when ?? code, members);
}
/** Return the error of a verdict `aborted`. */
export function abort(code, failed, members) {
    const said = Object.hasOwn(ABORTED, code) ? ABORTED[code] : code;
    const keys = failed.slice(0, 3).map((entry) => JSON.stringify(entry.key));
    const more = failed.length > 3 ? ", …" : "";
    const reason = text(members["reason"]);
    const detail = said + (keys.length ? ` (keys: ${keys.join(", ")}${more})` : "") + (reason ? ` (reason: ${reason})` : "");
    if (code === "check-failed") {
        return new CheckFailedError(detail, members, failed, "precondition-failed");
    }
    if (code === "constraint-violated") {
        return new ConstraintViolatedError(detail, members, failed, "constraint-violated");
    }
    return new AbortedError(detail, members, failed);
}
function isProblemType(type) {
    return Object.hasOwn(PROBLEMS, type);
}
function text(value) {
    return typeof value === "string" ? value : undefined;
}
