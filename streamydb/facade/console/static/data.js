// The view of keys: lists at a snapshot, a key's value and its history.

import { call, path } from "./api.js";
import { byId, el, put, say, visible } from "./dom.js";
import { exact, moment } from "./format.js";
import { parse, pretty } from "./json.js";

const PAGE = 50;
const PREVIEW = 160;

let cursor = null;
let listed = 0;
let choice = 0;
let listing = 0;
let strong = true;
let told;
const looked = new Promise((done) => { told = done; });
let actions;

/** Wires the forms; `actions` has write(key, version, text) and lookUp(id). */
export function startData(given) {
  actions = given;
  byId("browse").addEventListener("submit", (event) => {
    event.preventDefault();
    list();
  });
  byId("at-now").addEventListener("click", () => {
    byId("at").value = "";
    list();
  });
  byId("at-slider").addEventListener("input", () => { byId("at").value = byId("at-slider").value; });
  byId("at-slider").addEventListener("change", () => list());
  byId("more-keys").addEventListener("click", () => list(cursor));
}

/** Tells which seqs can be looked at. */
export function setSeqs(oldest, latest) {
  const slider = byId("at-slider");
  slider.min = Math.max(1, oldest ?? 1);
  slider.max = Math.max(1, latest);
  if (!byId("at").value) slider.value = slider.max;
  say(byId("at-range"), `Back in time: seq ${exact(slider.min)} to ${exact(slider.max)}`);
}

/** Tells whether reads of the present are answered; else the last snapshot is shown. */
export function setStrong(answered) {
  strong = answered;
  told();
}

export function isListed() {
  return listed > 0;
}

/** Lists keys from the start, or goes on at a cursor. */
export async function list(from = null) {
  const mine = (listing += 1);
  await looked;
  const query = { limit: PAGE, cursor: from, consistency: strong ? "" : "snapshot" };
  if (!from) Object.assign(query, { prefix: byId("prefix").value, at: byId("at").value.trim() });
  try {
    const page = parse((await call("GET", path("kv", null, query))).text);
    if (mine !== listing) return;
    const entries = page.get("entries").parts.map(entryOf);
    const rows = entries.map((entry) => row(entry));
    if (from) byId("keys").append(...rows);
    else put(byId("keys"), ...rows);
    cursor = page.get("cursor").plain();
    listed = (from ? listed : 0) + rows.length;
    byId("more-keys").hidden = cursor === null;
    const many = `${exact(listed)} ${listed === 1 ? "key" : "keys"}${cursor ? ", and more" : ""}`;
    say(byId("browse-status"), `${many} · snapshot at seq ${page.get("seq").text}`);
  } catch (problem) {
    if (mine !== listing) return;
    if (!from) put(byId("keys"));
    byId("more-keys").hidden = true;
    say(byId("browse-status"), problem.message);
  }
}

function entryOf(node) {
  return { key: node.get("key").plain(), value: node.get("value"), version: node.get("version").text };
}

function row({ key, value, version }) {
  const at = byId("at").value.trim();
  return el("li", {}, el("button", { type: "button", class: "row", onclick: () => open(key, at) },
    el("span", { class: "key" }, visible(key)),
    el("span", { class: "meta" }, `v ${version}`),
    el("span", { class: "preview" }, preview(value.text))));
}

export const preview = (text) => (text.length > PREVIEW ? text.slice(0, PREVIEW) + " …" : text);

/** Shows a key as it was at a seq ("" for now), with its history. */
export async function open(key, at = "") {
  const mine = (choice += 1);
  const panel = byId("detail");
  try {
    const when = at ? `,"at":${BigInt(at)}` : strong ? "" : ',"consistency":"snapshot"';
    const body = `{"keys":[${JSON.stringify(key)}]${when}}`;
    const read = parse((await call("POST", path("read", null), { body })).text);
    const seq = read.get("seq").text;
    const found = read.get("entries").parts[0][1];
    if (mine !== choice) return;
    const history = el("ol", { class: "rows history", "aria-label": "History, the newest version first" });
    put(panel, ...detail(key, found, seq, at), el("h4", {}, "History"), history);
    if (panel.getBoundingClientRect().top > 0.8 * innerHeight) panel.scrollIntoView();
    await extend(history, key, seq);
  } catch (problem) {
    if (mine === choice) put(panel, title(key), el("p", { class: "notice" }, problem.message));
  }
}

const title = (key) => el("h3", { class: "key" }, visible(key));

function detail(key, found, seq, at) {
  const absent = found.isNull;
  const entry = absent ? null : entryOf(found);
  const when = absent ? "" : ` · written ${moment(found.get("ts_ms").plain())}`;
  const words = absent ? `absent at seq ${seq}` : `version ${entry.version}${when}`;
  const text = absent ? "" : pretty(entry.value);
  const version = absent ? "0" : entry.version;
  return [
    title(key),
    el("p", { class: "hint" }, `${words} · ${at ? "as of" : "now, at"} seq ${seq}`),
    absent ? el("p", { class: "empty-value" }, "no value") : el("pre", { class: "json", tabindex: "0", "aria-label": "Value" }, text),
    el("div", { class: "buttons" },
      at ? el("button", { type: "button", class: "quiet", onclick: () => open(key) }, "Show now") : null,
      el("button", { type: "button", "data-write": true, hidden: !actions.mayWrite(),
        onclick: () => actions.write(key, version, absent ? "0" : entry.value.text) }, "Write…")),
  ];
}

/** Adds versions up to a seq to the history. */
async function extend(history, key, at) {
  if (key === "." || key === "..") {
    history.append(el("li", { class: "hint" }, "Browsers cannot ask for the history of a key of dots."));
    return;
  }
  try {
    const page = parse((await call("GET", path("history", key, { at: at === "0" ? "" : at }))).text);
    const versions = page.get("versions").parts;
    history.append(...versions.map((version) => line(key, version)));
    if (!versions.length) history.append(el("li", { class: "hint" }, "No version is kept up to here."));
    if (page.get("more").plain()) history.append(goOn(history, key, versions.at(-1)));
  } catch (problem) {
    history.append(el("li", { class: "hint" }, problem.message));
  }
}

function goOn(history, key, last) {
  const item = el("li", {}, el("button", { type: "button", class: "quiet", onclick: () => {
    item.remove();
    extend(history, key, (BigInt(last.get("version").text) - 1n).toString());
  } }, "Older versions"));
  return item;
}

function line(key, version) {
  const seq = version.get("version").text;
  const id = version.get("txn_id").plain();
  const deleted = version.get("deleted").plain();
  return el("li", { class: "line" },
    el("button", { type: "button", class: "link seq", title: "Show the state at this seq", onclick: () => open(key, seq) }, `seq ${seq}`),
    el("span", { class: "meta" }, moment(version.get("ts_ms").plain())),
    el("span", { class: deleted ? "preview deleted" : "preview" }, deleted ? "deleted" : preview(version.get("value").text)),
    el("button", { type: "button", class: "link id", title: "Look up the transaction", onclick: () => actions.lookUp(id) }, visible(id)));
}
