// The view of keys: lists at the chosen seq, a key's value and its history.

import { READ_S, database, words } from "./database.js";
import { byId, el, put, say, visible } from "./dom.js";
import { facts, fresh, known } from "./facts.js";
import { distant, exact, moment, preview } from "./format.js";
import { extend, mark } from "./history.js";
import { pretty } from "./json.js";

const PAGE = 50;

let walk = null;
let listing = 0;
let opening = 0;
let opened = null;
let actions;

/** Wires the forms; `actions` has write(key, entry, text) and lookUp(id). */
export function startData(given) {
  actions = given;
  byId("browse").addEventListener("submit", (event) => {
    event.preventDefault();
    refresh();
  });
  byId("at-now").addEventListener("click", () => choose(""));
  byId("at-slider").addEventListener("input", () => { byId("at").value = byId("at-slider").value; });
  byId("at-slider").addEventListener("change", () => refresh());
  byId("more-keys").addEventListener("click", () => goOn(walk, listing));
}

/** Shows which seqs can be looked at. */
export function showSeqs() {
  const slider = byId("at-slider");
  slider.min = Math.max(1, facts.oldest);
  slider.max = Math.max(1, facts.latest);
  slider.value = byId("at").value || slider.max;
  say(byId("at-range"), `Back in time: seq ${exact(slider.min)} to ${exact(slider.max)}`);
}

export const isListed = () => walk !== null;

/** Forgets what another token may not see. */
export function forgetData() {
  listing += 1;
  opening += 1;
  walk = opened = null;
  byId("more-keys").hidden = true;
  say(byId("browse-status"), "");
  put(byId("keys"));
  put(byId("detail"), el("p", { class: "hint" }, "Choose a key to see its value and its history."));
}

/** The chosen seq; undefined for the present. */
function chosen() {
  const text = byId("at").value.trim();
  return text ? Number(text) : undefined;
}

/** Chooses a seq, "" for the present: list and detail follow. */
function choose(seq) {
  byId("at").value = seq;
  return refresh();
}

/** Lists keys from the start, and shows the open key as of the same seq, too. */
export async function refresh(reopen = true) {
  const mine = (listing += 1);
  await known();
  showSeqs();
  if (reopen && opened !== null) open(opened);
  try {
    const seq = chosen() ?? (await database().read([], { ...fresh(), timeoutS: READ_S })).seq;
    const scan = database().scan(byId("prefix").value, { at: seq, timeoutS: READ_S });
    const next = await scan.next();
    if (mine !== listing) return;
    walk = { scan, seq, next, listed: 0 };
    put(byId("keys"));
    await goOn(walk, mine);
  } catch (error) {
    if (mine !== listing) return;
    put(byId("keys"));
    byId("more-keys").hidden = true;
    say(byId("browse-status"), words(error));
  }
}

/** Adds the next page of a list, all of one snapshot. */
async function goOn(on, mine) {
  const rows = [];
  for (; rows.length < PAGE && !on.next.done; on.next = await on.scan.next()) rows.push(row(on.next.value));
  if (mine !== listing) return;
  on.listed += rows.length;
  byId("keys").append(...rows);
  byId("more-keys").hidden = on.next.done;
  const many = `${exact(on.listed)} ${on.listed === 1 ? "key" : "keys"}${on.next.done ? "" : ", and more"}`;
  say(byId("browse-status"), `${many} · snapshot at seq ${on.seq}`);
}

function row({ key, value, version }) {
  return el("li", {}, el("button", { type: "button", class: "row", onclick: () => open(key, true) },
    el("span", { class: "key" }, visible(key)),
    el("span", { class: "meta" }, `v ${version}`),
    el("span", { class: "preview" }, preview(value.text))));
}

/** Shows a key as it is now, with its history. */
export function openNow(key) {
  const past = byId("at").value !== "";
  byId("at").value = "";
  if (past && walk) refresh(false);
  return open(key, true);
}

/** Shows a key as of the chosen seq; `moved`: brings it into sight. */
async function open(key, moved = false) {
  const mine = (opening += 1);
  const panel = byId("detail");
  const at = chosen();
  opened = key;
  try {
    const options = at === undefined ? fresh() : { at };
    const { seq, entries } = await database().read([key], { ...options, timeoutS: READ_S });
    if (mine !== opening) return;
    const same = panel.dataset.key === key ? panel.querySelector(".history") : null;
    const history = same ?? el("ol", { class: "rows history", "aria-label": "History, the newest version first" });
    panel.dataset.key = key;
    put(panel, ...detail(key, entries.get(key), seq, at), el("h4", {}, "History"), history);
    if (moved && panel.getBoundingClientRect().top > 0.8 * innerHeight) panel.scrollIntoView();
    if (!same || at === undefined) await extend(history, key, null, { choose, lookUp: actions.lookUp });
    mark(history, seq);
  } catch (error) {
    delete panel.dataset.key;
    if (mine === opening) put(panel, title(key), el("p", { class: "notice" }, words(error)));
  }
}

const title = (key) => el("h3", { class: "key" }, visible(key));

function detail(key, entry, seq, at) {
  const absent = entry.value === undefined;
  const ends = entry.expiresMs === undefined ? "" : ` · ends ${distant(entry.expiresMs)}`;
  const state = absent ? `absent at seq ${seq}` : `version ${entry.version} · written ${moment(entry.tsMs)}${ends}`;
  return [
    title(key),
    el("p", { class: "hint" }, `${state} · ${at === undefined ? "now, at" : "as of"} seq ${seq}`),
    absent ? el("p", { class: "empty-value" }, "no value")
      : el("pre", { class: "json", tabindex: "0", "aria-label": "Value" }, pretty(entry.value)),
    el("div", { class: "buttons" },
      at === undefined ? null : el("button", { type: "button", class: "quiet", onclick: () => choose("") }, "Show now"),
      el("button", { type: "button", "data-write": true, hidden: !facts.writes,
        onclick: () => actions.write(key, entry, absent ? "0" : entry.value.text) }, "Write…")),
  ];
}
