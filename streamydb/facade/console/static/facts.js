// What the page knows of the database and of its token, from the figures of the last second.

/** `strong`: reads of the present are answered; else the last snapshot is shown. */
export const facts = { strong: true, oldest: 1, latest: 0, writes: false, read: [""], write: [""] };

let told;
let waiting;
forget();

/** Resolves when it is known what this token may see, and of when. */
export const known = () => waiting;

/** Takes in an answer of /v1/stats. */
export function learn({ health, oldest, seq, client }) {
  Object.assign(facts, { strong: health.strong, oldest: oldest ?? 1, latest: seq });
  Object.assign(facts, { read: client.scopes.read, write: client.scopes.write });
  facts.writes = facts.write.length > 0;
  told();
}

/** Forgets what was known; `known` waits for the next answer. */
export function forget() {
  facts.writes = false;
  waiting = new Promise((done) => { told = done; });
}

/** Tells that there is no answer: whoever waits finds out for himself. */
export function giveUp() {
  facts.strong = true;
  told();
}

/** The options of a read of the present, or of the latest there is. */
export const fresh = () => ({ consistency: facts.strong ? "strong" : "snapshot" });

/** A prefix that this token may read: none if it may read all keys. */
export const home = (scopes) =>
  scopes.includes("") ? "" : scopes.find((scope) => !scope.startsWith("$")) ?? scopes[0] ?? "";
