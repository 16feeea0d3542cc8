// The view that follows changes. Only the newest are kept, and drawn a few times a second.

import { events, path } from "./api.js";
import { byId, el, put, say, visible } from "./dom.js";
import { clock, exact } from "./format.js";
import { parse } from "./json.js";
import { preview } from "./data.js";

const ROWS = 200;
const DRAW_MS = 200;
const RETRY_MS = 1_000;
const OPS = { c: "created", u: "updated", d: "deleted" };

let controller = null;
let waiting = [];
let seen = 0;
let position = "";
let choose;

/** Wires the form; a key that is clicked goes to `chosen`. */
export function startChanges(chosen) {
  choose = chosen;
  byId("follow").addEventListener("submit", (event) => {
    event.preventDefault();
    if (controller) stopChanges("Stopped");
    else follow();
  });
  byId("clear").addEventListener("click", () => {
    waiting = [];
    seen = 0;
    put(byId("events"));
  });
}

/** Ends following. */
export function stopChanges(words = "Not following") {
  controller?.abort();
  controller = null;
  byId("follow-button").textContent = "Follow";
  tell(words);
}

async function follow() {
  const mine = (controller = new AbortController());
  const target = path("changes", null, { prefix: byId("follow-prefix").value, since: byId("since").value.trim() });
  byId("follow-button").textContent = "Stop";
  position = "";
  tell("Connecting");
  const drawing = setInterval(draw, DRAW_MS);
  try {
    while (controller === mine) await once(target, mine.signal);
  } catch (problem) {
    if (controller === mine) stopChanges(problem.message);
  } finally {
    clearInterval(drawing);
    draw();
  }
}

/** One connection; ends when it is lost, so that the next goes on after the last whole transaction. */
async function once(target, signal) {
  try {
    for await (const event of events(target, { lastId: position, signal })) take(event);
  } catch (problem) {
    if (signal.aborted || ![0, 408, 429, 503].includes(problem.status ?? 0)) throw problem;
  }
  if (signal.aborted) return;
  tell("Connection lost; trying again");
  await new Promise((done) => setTimeout(done, RETRY_MS));
}

function take({ id, event, data }) {
  if (id) position = id;
  if (event === "change") {
    seen += 1;
    waiting.push(data);
    if (waiting.length > ROWS) waiting.shift();
  }
  if (event === "error") tell(parse(data).get("title").plain());
  else tell("Following");
}

function tell(words) {
  const where = position ? ` · up to seq ${position}` : "";
  say(byId("follow-status"), `${words}${where} · ${exact(seen)} ${seen === 1 ? "change" : "changes"}`);
}

function draw() {
  if (!waiting.length) return;
  const list = byId("events");
  list.prepend(...waiting.reverse().map(row));
  waiting = [];
  while (list.children.length > ROWS) list.lastChild.remove();
}

function row(data) {
  const change = parse(data);
  const op = change.get("op").plain();
  const key = change.get("key").plain();
  return el("li", { class: "line" },
    el("span", { class: "badge", "data-op": op }, OPS[op]),
    el("button", { type: "button", class: "link key", onclick: () => choose(key) }, visible(key)),
    el("span", { class: "meta" }, `seq ${change.get("source").get("seq").text} · ${clock(change.get("ts_ms").plain())}`),
    el("span", { class: "preview" }, `${value(change, "before")} → ${value(change, "after")}`));
}

function value(change, name) {
  const node = change.get(name);
  return node.isNull ? "∅" : preview(node.text);
}
