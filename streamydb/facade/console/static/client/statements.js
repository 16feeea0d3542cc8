// Made of clients/typescript/src/statements.ts (0c0a76a15d4bda0a43c3812892311cfbf3c0ed74a7b7df89cf7b15c1102a9ac3): python -m tools.console_client
/**
 * Transactions of SQL on tables, which the facade executes.
 *
 * What only selects is tried again after whatever may pass. What may write is sent once with an id,
 * and again, with another one, after a conflict. If its answer is lost, nothing but the verdict of
 * that id tells whether it is committed: executed again, it might find its own work done.
 */
import { AbortedError, ClientError, ConflictError, OutcomeUnknownError } from "./errors.js";
import { sleep, tried } from "./reads.js";
import { invalid } from "./session.js";
import { ask, checkNumbers } from "./transactions.js";
/** With what statements begin that write nothing, whatever follows. */
const READING = /^\s*(select|values)/i;
/** Statements with their parameters. */
export function prepared(statements) {
    const found = statements.map((each) => (typeof each === "string" ? { sql: each } : each));
    if (!found.length)
        throw invalid("There is no statement.");
    return found.map(({ sql, params = [] }) => {
        if (typeof sql !== "string" || typeof params !== "object") {
            throw invalid("A statement is text, or an object with `sql` and `params`.");
        }
        checkNumbers(params);
        return { sql, params };
    });
}
/** Execute statements as one transaction. */
export async function executeSql(context, tables, statements, first, timeoutS) {
    const { session } = context;
    const retry = session.retry(timeoutS);
    const perform = (freshness, id, waitS) => send(context, { tables, statements, ...freshness }, id, waitS);
    if (statements.every(({ sql }) => READING.test(sql))) {
        return resultsOf(context, await tried(context, retry, (waitS) => perform(first, undefined, waitS), () => retry.leftS()));
    }
    let freshness = first;
    for (let attempt = 1;; attempt += 1) {
        let pause;
        try {
            const id = session.newId();
            return resultsOf(context, await once(context, retry, id, (waitS) => perform(freshness, id, waitS)));
        }
        catch (error) {
            if (!(error instanceof AbortedError) || error.code !== "check-failed")
                throw error;
            session.saw(error.seq);
            freshness = session.floor(session.seq);
            pause = attempt < session.options.conflictsMax ? retry.again() : undefined;
            if (pause === undefined)
                throw givenUp(attempt, error);
        }
        await sleep(context, pause);
    }
}
function givenUp(attempts, conflict) {
    const detail = `Others wrote what was read in each of ${attempts} attempts; nothing was written.`;
    return new ConflictError(detail, conflict.members, [], "precondition-failed");
}
/** Execute statements that may write, once. */
async function once(context, retry, id, perform) {
    for (;;) {
        let pause;
        try {
            return await perform(retry.leftS());
        }
        catch (error) {
            if (!(error instanceof ClientError))
                throw error;
            if (error.uncertain) {
                const later = { transport: context.transport, session: context.session };
                const asked = () => ask(later, { id, payload: "" });
                throw new OutcomeUnknownError(id, "", asked, asked, error);
            }
            pause = error.retriable ? retry.again(error) : undefined;
            if (pause === undefined)
                throw error;
        }
        await sleep(context, pause);
    }
}
async function send({ transport, signal }, fields, id, timeoutS) {
    const headers = { "Content-Type": "application/json" };
    if (id !== undefined)
        headers["Idempotency-Key"] = id;
    const body = transport.json.stringify(fields);
    const answer = await transport.send({ method: "POST", path: "/v1/sql", headers, body, timeoutS, signal });
    return answer.json();
}
function resultsOf({ session }, { seq, results }) {
    session.saw(seq);
    return results.map(({ columns, rows, changed }) => ({ seq, columns, rows, changed: changed ?? undefined }));
}
