// Made of clients/typescript/src/transactions.ts (e261977409ba37337e38fe98c2e6b958dcf1e47725fea8097ff50bdfb0677a1b): python -m tools.console_client
/**
 * Transactions: sent, repeated, and what their answers mean.
 *
 * A transaction is sent again with the same bytes and id, which is safe at any time. As soon as one
 * of the attempts may have reached the log, nothing but a verdict ends the matter, or
 * `OutcomeUnknownError`.
 *
 * The verdict that a transaction lacks locks ends nothing: whoever meets it, a facade too, sends the
 * next attempt, and that one may commit. So who asks goes on to the verdict of the last attempt.
 */
import { abort, ClientError, OutcomeUnknownError, problem, RequestError, refusal, UnexpectedAnswerError, } from "./errors.js";
import { byCodePoints } from "./ranges.js";
import { sleep, tried } from "./reads.js";
import { ID_BYTES_MAX, LOCK_ATTEMPTS_MAX, UNIQUE_PREFIX, UNTIMELY } from "./tables.js";
/** How long the verdict of a transaction is looked for whose deadline has passed, at least. */
const SETTLE_S = 10;
/** How many deadlines a transaction is given at most. */
const DATES_MAX = 3;
/** Return a transaction's bytes. */
export function prepare(context, id, transaction, deadlineMs) {
    const { asserts, checks, reads, updates, call, locks } = transaction;
    const given = { asserts, checks, reads, updates, call, locks };
    const parts = Object.entries(given).filter(([, part]) => part !== undefined && Object.keys(part).length);
    const fields = { id, ...Object.fromEntries(parts), deadline_ms: deadlineMs };
    for (const update of updates ?? []) {
        const value = update.value;
        const wanted = ["put", "append", "max", "min"].includes(update.op);
        if (wanted && value === undefined)
            throw refusal("invalid-transaction", "A value is missing.", id);
        if (update.op === "put" && value === null)
            throw refusal("null-value", undefined, id);
    }
    checkNumbers(fields, id);
    return { id, payload: context.transport.json.stringify(fields) };
}
/** Refuse what `JSON.stringify` would turn into null. */
export function checkNumbers(value, id) {
    if (typeof value === "number" && !Number.isFinite(value)) {
        throw refusal("number-range", "NaN and infinity are not JSON.", id);
    }
    if (typeof value === "object" && value !== null) {
        for (const part of Object.values(value))
            checkNumbers(part, id);
    }
}
/**
 * Send a transaction until there is a verdict, or no time left.
 *
 * One that lacks the locks of a unique constraint is sent again with them. When the time has
 * passed, nothing is sent any more: an attempt at the very end only looks for the verdict, if there
 * may be one. `fresh`: nobody has sent it before. `redated`: makes it anew, with a deadline by what
 * the session knows now, for the case that this machine's clock differs from the brokers';
 * undefined: the deadline is the caller's.
 */
export async function execute(context, prepared, timeoutS, fresh, redated) {
    const { session } = context;
    const retry = session.retry(timeoutS);
    let first = prepared;
    let txn = first;
    let perform = () => send(context, txn, retry.waitS());
    let asked;
    let uncertain = false;
    let alone = fresh;
    let attempts = 1;
    let dates = 1;
    for (;;) {
        let fault;
        let [sought, position] = [txn.id, undefined];
        const outcome = await learned(context, asked === undefined, perform);
        if (outcome instanceof ClientError) {
            fault = outcome;
            if (isLate(fault)) {
                if (!alone)
                    return settled(context, txn, retry, fault);
                const again = dates < DATES_MAX && "ts_ms" in fault.members ? redated?.() : undefined;
                if (again !== undefined && again.payload !== first.payload && retry.leftS()) {
                    first = txn = again;
                    [asked, dates] = [undefined, dates + 1];
                    perform = () => send(context, txn, retry.waitS());
                    continue;
                }
            }
            uncertain ||= fault.uncertain;
        }
        else if (isResult(outcome)) {
            const again = await following(context, txn, asked, outcome);
            if (again === undefined || attempts >= LOCK_ATTEMPTS_MAX)
                return conclude(context, outcome);
            [txn, asked, attempts] = [again, undefined, attempts + 1];
            perform = () => send(context, txn, retry.waitS());
            continue;
        }
        else {
            uncertain = true;
            [sought, position] = [outcome.id ?? txn.id, outcome.position];
        }
        alone &&= !uncertain;
        const pause = fault === undefined || mayPass(fault) ? retry.again(fault) : undefined;
        if (pause !== undefined)
            await sleep(context, pause);
        const late = !retry.leftS();
        if (pause === undefined || (late && !uncertain)) {
            if (!uncertain && fault !== undefined)
                throw fault;
            throw unknown(context, txn, fault);
        }
        const [id, at] = [sought, position];
        asked = late || at !== undefined ? id : undefined;
        perform = () => asked === undefined ? send(context, txn, retry.waitS()) : look(context, id, at, retry.waitS());
    }
}
/** The outcome of a request, or its fault; the commit time that it tells is learned. `sends`: it sends. */
async function learned(context, sends, perform) {
    const { session } = context;
    const sentMs = sends ? session.surroundings.wallMs() : undefined;
    let outcome;
    try {
        outcome = await perform();
    }
    catch (error) {
        if (!(error instanceof ClientError))
            throw error;
        return isLate(error) ? withClocks(context, error, sentMs) : error;
    }
    if (!isResult(outcome))
        return outcome;
    if (isUntimely(outcome.code)) {
        session.saw(outcome.seq);
        const fault = refusal(outcome.code ?? "", undefined, outcome.id ?? undefined);
        return withClocks(context, fault, sentMs, outcome.ts_ms);
    }
    session.saw(0, commitMs(outcome), sentMs);
    return outcome;
}
/** Learn the commit time of a copy that was refused; return its error with the clocks. */
function withClocks({ session }, fault, sentMs, tsMs) {
    const commitMs = tsMs ?? Number(fault.members["ts_ms"] ?? 0);
    if (!commitMs)
        return fault;
    const clockMs = session.surroundings.wallMs();
    session.saw(0, commitMs, sentMs);
    const members = { ...fault.members, ts_ms: commitMs, clock_ms: clockMs };
    const detail = `${fault.detail} ${clocksTold(clockMs, commitMs)}`;
    return problem(fault.type, fault.status, detail, members, fault.retryAfterS);
}
/** Say what this machine's clock and a commit time were at one moment, and how far they are apart. */
function clocksTold(clockMs, commitMs) {
    const aheadS = Math.abs(clockMs - commitMs) / 1_000;
    const [hours, minutes, seconds] = [Math.trunc(aheadS / 3_600), Math.trunc(aheadS / 60) % 60, aheadS % 60];
    const parts = [...(hours ? [`${hours} h`] : []), ...(hours || minutes ? [`${minutes} min`] : [])];
    const length = [...parts, `${parts.length ? seconds.toFixed(0) : seconds} s`].join(" ");
    const side = clockMs > commitMs ? "ahead of" : "behind";
    return `The commit time was ${moment(commitMs)} when this machine's clock said ${moment(clockMs)}: ${length} ${side} it.`;
}
function moment(timeMs) {
    const date = new Date(timeMs);
    return Number.isNaN(date.getTime()) ? `${timeMs} ms after 1970` : date.toISOString();
}
/** The commit time of the record that a result is of. */
function commitMs(result) {
    return (result.duplicate ?? result).ts_ms;
}
/**
 * What is to be sent after a verdict: the next attempt; undefined if the verdict is final.
 *
 * After an attempt of a facade it is ours once more: the facade goes on from there. What it answers
 * to that is final, because it has gone on as far as it does. `asked`: the id that was asked for;
 * undefined: something was sent.
 */
async function following(context, txn, asked, result) {
    if (result.id === txn.id)
        return relocked(context, txn, result);
    return asked !== undefined && lacking(result).length ? txn : undefined;
}
/** Find the verdict of a transaction one of whose copies came after the deadline. */
async function settled(context, txn, retry, fault) {
    const wait = context.session.retry(Math.max(retry.leftS(), SETTLE_S));
    let result;
    try {
        result = await found(context, txn, wait, () => wait.leftS());
    }
    catch (error) {
        if (!(error instanceof ClientError))
            throw error;
        throw unknown(context, txn, fault);
    }
    if (isUntimely(result.code))
        throw fault;
    return conclude(context, result);
}
/** Look for the verdict of a transaction that was sent before. */
export async function ask(context, txn, timeoutS) {
    const retry = context.session.retry(timeoutS);
    return conclude(context, await found(context, txn, retry));
}
/** Look for the verdict of the last attempt of a transaction; `timeS`: how long a look may take. */
async function found(context, txn, retry, timeS) {
    let last;
    let attempts = 0;
    let sought = txn.id;
    let position;
    for (;;) {
        const id = sought;
        const at = position;
        let outcome;
        try {
            outcome = await tried(context, retry, (waitS) => look(context, id, at, waitS), timeS);
        }
        catch (error) {
            const missing = error instanceof RequestError && error.is("transaction-unknown");
            if (!missing || last === undefined)
                throw error;
            if (attempts >= LOCK_ATTEMPTS_MAX)
                return last;
            throw unknown(context, txn, error);
        }
        if (!isResult(outcome)) {
            position = outcome.position;
            const pause = retry.again();
            if (pause === undefined)
                throw unknown(context, txn);
            await sleep(context, pause);
        }
        else if (isUntimely(outcome.code) && position !== undefined) {
            position = undefined; // the verdict of this copy; there may be another one
        }
        else if (!lacking(outcome).length) {
            return outcome;
        }
        else if (!retry.leftS()) {
            throw unknown(context, txn);
        }
        else {
            [last, attempts] = [outcome, attempts + 1];
            [sought, position] = [await nextId(id), undefined];
        }
    }
}
async function send({ transport, signal }, txn, timeoutS) {
    const headers = { "Content-Type": "application/json", ...prefer(timeoutS) };
    const request = { method: "POST", path: "/v1/transactions", headers, body: txn.payload };
    return outcomeOf(await transport.send({ ...request, timeoutS, signal }));
}
async function look({ transport, signal }, id, position, timeoutS) {
    const path = `/v1/transactions/${encodeURIComponent(id).replaceAll(".", "%2E")}`;
    const params = { record: position };
    return outcomeOf(await transport.send({ method: "GET", path, params, headers: prefer(timeoutS), timeoutS, signal }));
}
function outcomeOf(answer) {
    if (answer.status === 202) {
        const [path = "", query = ""] = (answer.headers.get("location") ?? "").split("?");
        const id = unquoted(path.slice(path.lastIndexOf("/") + 1), answer.status) || undefined;
        return { position: new URLSearchParams(query).get("record") ?? undefined, id };
    }
    const result = answer.json();
    if (typeof result?.status !== "string" || typeof result.seq !== "number") {
        throw new UnexpectedAnswerError("The answer is not one of a facade.", answer.status);
    }
    return result;
}
function unquoted(part, status) {
    try {
        return decodeURIComponent(part);
    }
    catch {
        throw new UnexpectedAnswerError("The answer is not one of a facade.", status);
    }
}
function prefer(timeoutS) {
    return { Prefer: `wait=${Math.trunc(Math.min(timeoutS, 1e6))}` };
}
function isResult(outcome) {
    return "status" in outcome;
}
function isUntimely(code) {
    return UNTIMELY.includes(code);
}
/** A copy was refused that came after the deadline, or too long before it. */
function isLate(fault) {
    return fault instanceof RequestError && isUntimely(fault.code);
}
/** Sending again may help. */
function mayPass(fault) {
    const missing = fault instanceof RequestError && fault.is("transaction-unknown");
    return fault.retriable || fault.uncertain || missing;
}
/** Return or throw what a verdict means. */
function conclude({ session }, result) {
    session.saw(result.seq, commitMs(result));
    const { id, seq, reads, ranges = [], returned = null } = result;
    if (result.status === "committed") {
        const repeated = result.duplicate !== undefined;
        return { id: id ?? "", seq, tsMs: result.ts_ms, reads, ranges, repeated, returned };
    }
    const code = result.code ?? "";
    const reason = result.reason === undefined ? {} : { reason: result.reason };
    if (result.status === "aborted")
        throw abort(code, result.failed, { code, id, seq, ...reason });
    throw refusal(code, undefined, id ?? undefined);
}
function unknown(context, txn, cause) {
    const later = { transport: context.transport, session: context.session };
    const asked = () => ask(later, txn);
    const again = txn.payload ? () => execute(later, txn, undefined, false) : asked;
    return new OutcomeUnknownError(txn.id, txn.payload, asked, again, cause);
}
/** The locks that an attempt lacked, if that is why it aborted. */
function lacking(result) {
    if (result.code !== "undeclared-key")
        return [];
    return result.failed.filter((entry) => entry.check === "lock").map((entry) => entry.key);
}
/** The attempt after the one with this verdict, with the locks that it lacked, if it did. */
async function relocked({ transport }, txn, result) {
    const missing = lacking(result);
    if (!missing.length)
        return undefined;
    if (missing.includes(UNIQUE_PREFIX))
        return txn; // hidden from this client: the facade goes on
    const fields = transport.json.parse(txn.payload);
    fields.id = await nextId(txn.id);
    const known = fields.locks ?? [];
    const named = [...known.filter((lock) => typeof lock === "string"), ...missing];
    const keys = new Set(named.filter((key) => key.startsWith(UNIQUE_PREFIX)));
    const prefixes = new Set(missing.filter((key) => !keys.has(key)));
    fields.locks = [
        ...[...keys].sort(byCodePoints),
        ...known.filter((lock) => typeof lock !== "string"),
        ...[...prefixes].sort(byCodePoints).map((prefix) => ({ range: { prefix } })),
    ];
    return { id: fields.id, payload: transport.json.stringify(fields) };
}
/** `id`, `id~1`, `id~2`, …; a hash stands for one that would become too long. */
async function nextId(id) {
    const [, stem, number] = /^(.*)~([0-9]{1,3})$/s.exec(id) ?? [];
    if (stem !== undefined)
        return `${stem}~${Number(number) + 1}`;
    const bytes = new TextEncoder().encode(id);
    if (bytes.length + 5 <= ID_BYTES_MAX)
        return `${id}~1`;
    const digest = new Uint8Array(await globalThis.crypto.subtle.digest("SHA-256", bytes));
    return `${Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("")}~1`;
}
