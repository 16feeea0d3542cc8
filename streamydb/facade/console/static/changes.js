// The view that follows changes. Only the newest are kept, and drawn a few times a second.

import { database, words } from "./database.js";
import { byId, el, put, say, visible } from "./dom.js";
import { facts } from "./facts.js";
import { clock, exact, preview } from "./format.js";

const ROWS = 200;
const DRAW_MS = 200;
const OPS = { c: "created", u: "updated", d: "deleted" };

let watch = null;
let waiting = [];
let seen = 0;
let choose;

/** Wires the form; a key that is clicked goes to `chosen`. */
export function startChanges(chosen) {
  choose = chosen;
  byId("follow").addEventListener("submit", (event) => {
    event.preventDefault();
    if (watch) stopChanges("Stopped");
    else follow();
  });
  byId("clear").addEventListener("click", () => clear());
}

/** Forgets what another token may not see. */
export function forgetChanges() {
  stopChanges();
  clear();
}

function clear() {
  waiting = [];
  seen = 0;
  put(byId("events"));
}

/** Ends following. */
function stopChanges(said = "Not following") {
  const ended = watch;
  watch = null;
  byId("follow-button").textContent = "Follow";
  tell(said, ended);
  ended?.close();
}

/** What the form asks for; a condition is JSON. */
function wanted() {
  const given = (id) => byId(id).value.trim() || undefined;
  const condition = (id, label) => {
    try {
      return given(id) && JSON.parse(given(id));
    } catch {
      throw new Error(`${label} is a check as JSON, such as {"ge": 100}.`);
    }
  };
  const since = given("since") ? Number(given("since")) : facts.strong ? undefined : facts.latest;
  return {
    since,
    start: byId("follow-start").value || undefined,
    end: byId("follow-end").value || undefined,
    where: condition("follow-where", "Value after"),
    whereBefore: condition("follow-before", "Value before"),
  };
}

async function follow() {
  let mine;
  try {
    mine = watch = database().watch(byId("follow-prefix").value, wanted());
  } catch (problem) {
    stopChanges(words(problem));
    return;
  }
  byId("follow-button").textContent = "Stop";
  tell("Connecting", mine);
  const drawing = setInterval(() => draw(mine), DRAW_MS);
  try {
    await mine.start();
    for await (const change of mine) take(change);
  } catch (error) {
    if (watch === mine) stopChanges(words(error));
  } finally {
    clearInterval(drawing);
    draw(mine);
  }
}

function take(change) {
  seen += 1;
  waiting.push(change);
  if (waiting.length > ROWS) waiting.shift();
}

function tell(said, on) {
  const where = on?.seq === undefined ? "" : ` · up to seq ${on.seq}`;
  say(byId("follow-status"), `${said}${where} · ${exact(seen)} ${seen === 1 ? "change" : "changes"}`);
}

function draw(on) {
  if (watch === on && on.seq !== undefined) tell("Following", on);
  if (!waiting.length) return;
  const list = byId("events");
  list.prepend(...waiting.reverse().map(row));
  waiting = [];
  while (list.children.length > ROWS) list.lastChild.remove();
}

function row({ op, key, seq, tsMs, before, value }) {
  return el("li", { class: "line" },
    el("span", { class: "badge", "data-op": op }, OPS[op]),
    el("button", { type: "button", class: "link key", onclick: () => choose(key) }, visible(key)),
    el("span", { class: "meta" }, `seq ${seq} · ${clock(tsMs)}`),
    el("span", { class: "preview" }, `${shown(before)} → ${shown(value)}`));
}

const shown = (node) => (node === undefined ? "∅" : preview(node.text));
