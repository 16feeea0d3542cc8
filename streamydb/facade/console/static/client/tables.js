// Made of clients/typescript/src/tables.ts (5754861f4d95cf859c503518c47ea167688322b6758798c93bed655f58df77f8): python -m tools.console_client
// Written by `python -m tools.typescript`: change what it reads.
/** Problem types: how a request fails, and whether it may succeed later. */
export const PROBLEMS = {
    "invalid-json": {
        "status": 400,
        "retriable": false,
        "uncertain": false
    },
    "invalid-parameter": {
        "status": 400,
        "retriable": false,
        "uncertain": false
    },
    "invalid-key": {
        "status": 400,
        "retriable": false,
        "uncertain": false
    },
    "query-invalid": {
        "status": 400,
        "retriable": false,
        "uncertain": false
    },
    "unauthorized": {
        "status": 401,
        "retriable": false,
        "uncertain": false
    },
    "forbidden": {
        "status": 403,
        "retriable": false,
        "uncertain": false
    },
    "cross-origin": {
        "status": 403,
        "retriable": false,
        "uncertain": false
    },
    "key-not-found": {
        "status": 404,
        "retriable": false,
        "uncertain": false
    },
    "transaction-unknown": {
        "status": 404,
        "retriable": false,
        "uncertain": false
    },
    "no-such-stream": {
        "status": 404,
        "retriable": false,
        "uncertain": false
    },
    "no-such-endpoint": {
        "status": 404,
        "retriable": false,
        "uncertain": false
    },
    "method-not-allowed": {
        "status": 405,
        "retriable": false,
        "uncertain": false
    },
    "body-timeout": {
        "status": 408,
        "retriable": true,
        "uncertain": false
    },
    "slow-reader": {
        "status": 408,
        "retriable": true,
        "uncertain": false
    },
    "aborted": {
        "status": 409,
        "retriable": false,
        "uncertain": false
    },
    "deadline-passed": {
        "status": 409,
        "retriable": false,
        "uncertain": false
    },
    "snapshot-gone": {
        "status": 410,
        "retriable": false,
        "uncertain": false
    },
    "other-generation": {
        "status": 410,
        "retriable": false,
        "uncertain": false
    },
    "precondition-failed": {
        "status": 412,
        "retriable": false,
        "uncertain": false
    },
    "too-large": {
        "status": 413,
        "retriable": false,
        "uncertain": false
    },
    "answer-too-large": {
        "status": 413,
        "retriable": false,
        "uncertain": false
    },
    "uri-too-long": {
        "status": 414,
        "retriable": false,
        "uncertain": false
    },
    "unsupported-media-type": {
        "status": 415,
        "retriable": false,
        "uncertain": false
    },
    "expectation-failed": {
        "status": 417,
        "retriable": false,
        "uncertain": false
    },
    "misdirected": {
        "status": 421,
        "retriable": false,
        "uncertain": false
    },
    "invalid-transaction": {
        "status": 422,
        "retriable": false,
        "uncertain": false
    },
    "constraint-violated": {
        "status": 422,
        "retriable": false,
        "uncertain": false
    },
    "query-costly": {
        "status": 422,
        "retriable": false,
        "uncertain": false
    },
    "id-reused": {
        "status": 422,
        "retriable": false,
        "uncertain": false
    },
    "too-many-requests": {
        "status": 429,
        "retriable": true,
        "uncertain": false
    },
    "headers-too-large": {
        "status": 431,
        "retriable": false,
        "uncertain": false
    },
    "internal": {
        "status": 500,
        "retriable": false,
        "uncertain": true
    },
    "queries-off": {
        "status": 501,
        "retriable": false,
        "uncertain": false
    },
    "overloaded": {
        "status": 503,
        "retriable": true,
        "uncertain": false
    },
    "log-unavailable": {
        "status": 503,
        "retriable": true,
        "uncertain": false
    },
    "read-model-behind": {
        "status": 503,
        "retriable": true,
        "uncertain": false
    },
    "not-ready": {
        "status": 503,
        "retriable": true,
        "uncertain": false
    },
    "verdict-unknown": {
        "status": 504,
        "retriable": true,
        "uncertain": true
    }
};
/** Reason codes of aborted transactions. */
export const ABORTED = {
    "check-failed": "An assert or a check does not hold; `failed` lists those that do not.",
    "bound-violated": "The result of an add is below its min or above its max.",
    "not-a-number": "An add, max, min or next_id met a value that is not a (whole) number.",
    "not-a-list": "An append met a value that is not a list.",
    "overflow": "The result of an add or next_id leaves 64 bits, or is not finite.",
    "value-too-large": "An append, or a write of a procedure, would make the value too large.",
    "result-too-large": "What was read and returned does not fit in one result record.",
    "values-too-large": "The values of all the keys that it touches are too many bytes together.",
    "range-too-large": "The ranges that it names hold too many keys together, or a call's too much.",
    "unknown-procedure": "The module is not deployed, or has no such procedure.",
    "procedure-aborted": "The procedure raised `Abort`; `reason` is what it said.",
    "procedure-error": "The procedure raised another exception; `reason` names its class.",
    "undeclared-key": "A key was touched that the transaction does not name; `reason` does.",
    "budget-exceeded": "The procedure used up a bound on its work; `reason` names the bound.",
    "reserved-key": "The procedure touched a key that only workflows and windows use.",
    "unknown-stream": "The procedure emitted to a stream that its workflow does not give it.",
    "not-the-owner": "The procedure asked for a window that is not its own.",
    "follow-up-refused": "A follow-up could not be made; `reason` names its procedure and why.",
    "batch-repeated": "A copy of a follow-up that was executed before; nothing is done again.",
    "batch-early": "A follow-up came before an earlier one; it is appended again after that.",
    "constraint-violated": "A constraint does not allow what would be written; see `failed`.",
    "constraint-refused": "The constraint cannot be declared or dropped; `reason` says why.",
    "internal": "A fault in streamy-db itself; a dead letter was written. Please report it."
};
/** Reason codes of rejected records. */
export const REJECTED = {
    "invalid-json": {
        "problem": "invalid-json",
        "when": "The record is empty or not JSON (RFC 8259, UTF-8, no lone surrogates)."
    },
    "invalid-transaction": {
        "problem": "invalid-transaction",
        "when": "Not a transaction: a field is missing, unknown or of another type."
    },
    "invalid-id": {
        "problem": "invalid-transaction",
        "when": "The id is missing, not a string, empty, too long, or has a control character."
    },
    "invalid-key": {
        "problem": "invalid-key",
        "when": "A key is not a string, is empty, or is too long."
    },
    "null-value": {
        "problem": "invalid-transaction",
        "when": "The record has no value (a tombstone), or a put stores null; use delete."
    },
    "number-range": {
        "problem": "invalid-json",
        "when": "An integer does not fit in 64 bits, or a number is beyond a double."
    },
    "too-deep": {
        "problem": "invalid-json",
        "when": "Arrays and objects are nested too deeply."
    },
    "transaction-too-large": {
        "problem": "too-large",
        "when": "The record has too many bytes."
    },
    "too-many-keys": {
        "problem": "too-large",
        "when": "The transaction touches too many different keys and ranges."
    },
    "value-too-large": {
        "problem": "too-large",
        "when": "A value has too many bytes in its canonical form."
    },
    "duplicate-update": {
        "problem": "invalid-transaction",
        "when": "Two updates name the same key."
    },
    "reserved-key": {
        "problem": "invalid-transaction",
        "when": "A key that begins with `$` is written; only the database writes those."
    },
    "call-not-alone": {
        "problem": "invalid-transaction",
        "when": "A call, deploy or constrain stands beside updates, or beside another."
    },
    "reserved-id": {
        "problem": "invalid-transaction",
        "when": "An id begins with `$flow/` and is no follow-up's, or the other way round."
    },
    "id-reused": {
        "problem": "id-reused",
        "when": "The id was used shortly before by a transaction with other bytes."
    },
    "deadline-passed": {
        "problem": "deadline-passed",
        "when": "The record was appended after its deadline; this copy was not executed."
    },
    "deadline-too-far": {
        "problem": "invalid-transaction",
        "when": "The deadline is too far ahead of the commit time (see the limits)."
    }
};
/** Codes of copies that came at the wrong time: another may have been executed. */
export const UNTIMELY = [
    "deadline-passed",
    "deadline-too-far"
];
export const ID_BYTES_MAX = 128;
export const KEY_BYTES_MAX = 480;
export const LOCK_ATTEMPTS_MAX = 8;
export const DEADLINE_AHEAD_MS_MAX = 3600000;
export const UNIQUE_PREFIX = "$unique/";
