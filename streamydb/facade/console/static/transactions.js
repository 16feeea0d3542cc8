// The view of transactions: run one, look one up.

import { READ_S, database } from "./database.js";
import { byId, el, put, say, visible } from "./dom.js";
import { examples } from "./examples.js";
import { facts, home } from "./facts.js";
import { parse, pretty } from "./json.js";
import { showOutcome } from "./verdict.js";

const editor = () => byId("editor");
let prefix = null;

export function startTransactions() {
  editor().addEventListener("input", () => check());
  editor().addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("run").requestSubmit();
  });
  byId("format").addEventListener("click", () => edit(editor().value));
  byId("run").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  byId("lookup").addEventListener("submit", (event) => {
    event.preventDefault();
    lookUp(byId("txn-id").value);
  });
}

/** Offers examples whose keys this token may write. */
export function showExamples() {
  const wanted = home(facts.write);
  if (prefix === wanted) return;
  prefix = wanted;
  const all = Object.entries(examples(prefix));
  put(byId("templates"), ...all.map(([name, body]) =>
    el("button", { type: "button", class: "quiet", onclick: () => edit(JSON.stringify(body)) }, name)));
  if (!editor().value) edit(JSON.stringify(all[0][1]));
}

/** Forgets what another token may not see. */
export function forgetTransactions() {
  put(byId("verdict"));
  put(byId("found"));
}

/** Puts a transaction in the editor, in several lines if it can be read. */
export function edit(text) {
  editor().value = text;
  const read = check();
  if (read) editor().value = pretty(read);
  put(byId("verdict"));
}

/** Prepares a write of a key that holds only while nobody else has written it; an end stays about where it was. */
export function editWrite(key, { version, expiresMs }, text) {
  const name = JSON.stringify(key);
  const ttl = expiresMs === undefined ? "" : `,"ttl_ms":${Math.max(1, expiresMs - Date.now())}`;
  edit(`{"checks":[{"key":${name},"version":${version}}],"updates":[{"op":"put","key":${name},"value":${text}${ttl}}]}`);
  editor().focus();
}

function check() {
  const status = byId("editor-status");
  try {
    const read = parse(editor().value);
    if (read.kind !== "object") throw new Error("A transaction is an object: { … }.");
    say(status, "This is JSON.");
    status.dataset.state = "good";
    editor().removeAttribute("aria-invalid");
    return read;
  } catch (error) {
    say(status, error.message);
    status.dataset.state = "bad";
    editor().setAttribute("aria-invalid", "true");
    return null;
  }
}

async function run() {
  const read = check();
  if (!read) {
    editor().focus();
    return;
  }
  const button = byId("run-button");
  const txn = prepared(read);
  byId("txn-id").value = txn.id;
  button.disabled = true;
  await showOutcome(byId("verdict"), `Waiting for the verdict of ${visible(txn.id)} …`, () => database().send(txn));
  button.disabled = false;
}

/** The transaction as it was typed; without an id it gets one, and a deadline. */
function prepared(read) {
  const given = read.get("id");
  if (given) return { id: String(given.plain()), payload: read.text };
  const { session } = database();
  const id = session.newId();
  const own = [["id", JSON.stringify(id)]];
  if (!read.get("deadline_ms")) own.push(["deadline_ms", String(session.deadlineMs())]);
  const members = [...own, ...read.parts.map(([name, part]) => [name, part.text])];
  return { id, payload: `{${members.map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(",")}}` };
}

/** Looks a transaction up by its id. */
export function lookUp(id) {
  byId("txn-id").value = id;
  const ask = () => database().verdict(id, { timeoutS: READ_S });
  return showOutcome(byId("found"), `Looking for ${visible(id)} …`, ask);
}
