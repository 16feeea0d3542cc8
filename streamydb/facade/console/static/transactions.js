// The view of transactions: run one, look one up, show a verdict.

import { call, freshId, path, Problem } from "./api.js";
import { byId, el, put, say, visible } from "./dom.js";
import { moment } from "./format.js";
import { parse, pretty } from "./json.js";

const TEMPLATES = {
  "Put": { updates: [{ op: "put", key: "greeting", value: { text: "hello" } }] },
  "Transfer": {
    updates: [
      { op: "add", key: "acct/1", by: -30, min: 0 },
      { op: "add", key: "acct/2", by: 30 },
    ],
    reads: ["acct/1", "acct/2"],
  },
  "Check and set": {
    checks: [{ key: "acct/1", ge: 10 }],
    updates: [{ op: "put", key: "flags/rich", value: true }],
  },
  "Next id": { updates: [{ op: "next_id", key: "orders" }, { op: "append", key: "log", value: "new order" }] },
};

const MARKS = { committed: "good", aborted: "warn", rejected: "bad", unknown: "wait" };

const editor = () => byId("editor");

export function startTransactions() {
  byId("templates").append(...Object.entries(TEMPLATES).map(([name, body]) =>
    el("button", { type: "button", class: "quiet", onclick: () => edit(JSON.stringify(body)) }, name)));
  edit(JSON.stringify(TEMPLATES.Put));
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

/** Puts a transaction in the editor, in several lines if it can be read. */
export function edit(text) {
  editor().value = text;
  const read = check();
  if (read) editor().value = pretty(read);
}

/** Prepares a write of a key that holds only while nobody else has written it. */
export function editWrite(key, version, text) {
  const name = JSON.stringify(key);
  edit(`{"checks":[{"key":${name},"version":${version}}],"updates":[{"op":"put","key":${name},"value":${text}}]}`);
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
  const given = read.get("id");
  const id = given ? String(given.plain()) : freshId();
  const headers = given ? {} : { "Idempotency-Key": id };
  const button = byId("run-button");
  button.disabled = true;
  wait(`Waiting for the verdict of ${visible(id)} …`);
  try {
    const found = await call("POST", path("transactions", null), { body: editor().value, headers });
    byId("txn-id").value = id;
    showVerdict(found, id);
  } catch (problem) {
    byId("txn-id").value = id;
    showProblem(problem, id);
  } finally {
    button.disabled = false;
  }
}

/** Looks a transaction up by its id. */
export async function lookUp(id, target = path("transactions", id)) {
  byId("txn-id").value = id;
  wait(`Looking for ${visible(id)} …`);
  try {
    showVerdict(await call("GET", target), id);
  } catch (problem) {
    showProblem(problem, id);
  }
}

const wait = (text) => answer(el("p", { class: "hint" }, text));

/** Shows an answer, and where it is: on a narrow page it is far below the editor. */
function answer(...parts) {
  const place = byId("verdict");
  put(place, ...parts);
  if (place.getBoundingClientRect().top > 0.8 * innerHeight) place.scrollIntoView({ block: "center" });
}

function showProblem(problem, id) {
  const unsure = ["verdict-unknown", "unreachable"].includes(problem.slug);
  answer(
    el("p", { class: "notice" }, problem instanceof Problem ? problem.message : `A fault of this page: ${problem.message}`),
    problem.members?.code ? el("p", {}, "Reason code: ", el("code", {}, problem.members.code)) : null,
    unsure ? askAgain(id, problem.members?.location) : null);
}

function askAgain(id, location) {
  const target = location?.startsWith("/v1/transactions/") ? location.slice(1) : undefined;
  return el("button", { type: "button", onclick: () => lookUp(id, target) }, "Ask again");
}

function showVerdict({ text, headers }, id) {
  const result = parse(text);
  const status = result.get("status").plain();
  const badge = el("span", { class: "badge", "data-state": MARKS[status] ?? "wait" }, status);
  if (status === "unknown") {
    answer(el("p", {}, badge, " not decided yet"), askAgain(id, headers.get("Location")));
    return;
  }
  const code = result.get("code").plain();
  answer(
    el("p", { class: "verdict-head" }, badge, code ? el("code", {}, code) : null),
    facts(result), failedTable(result.get("failed").parts), readsTable(result.get("reads").parts),
    el("details", {}, el("summary", {}, "The whole result"), el("pre", { class: "json", tabindex: "0" }, pretty(result))));
}

function facts(result) {
  const source = result.get("source");
  const rows = [
    ["id", visible(String(result.get("id").plain()))],
    ["seq", result.get("seq").text],
    ["time", moment(result.get("ts_ms").plain())],
    ["log", `partition ${source.get("partition").text}, offset ${source.get("offset").text}`],
  ];
  if (result.get("duplicate")) rows.push(["repeated", `as seq ${result.get("duplicate").get("seq").text}`]);
  return el("dl", {}, ...rows.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
}

function failedTable(failed) {
  if (!failed.length) return null;
  const rows = failed.map((each) => [
    `${each.get("check").plain()} ${each.get("index").text}`,
    visible(each.get("key").plain()),
    each.get("truncated") ? "not shown" : each.get("value").text,
    each.get("version").text,
  ]);
  return table("What did not hold", ["what", "key", "value met", "version"], rows, "failed");
}

function readsTable(reads) {
  if (!reads.length) return null;
  return table("Values read", ["key", "value"], reads.map(([key, value]) => [visible(key), value.text]), "reads");
}

function table(caption, heads, rows, name) {
  return el("table", { class: name }, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, cell))))));
}
