// The view of what runs inside transactions: stored procedures, and constraints.

import { call, path } from "./api.js";
import { READ_S, database, words } from "./database.js";
import { byId, el, put, visible } from "./dom.js";
import { facts, fresh, home, known } from "./facts.js";
import { parse } from "./json.js";

const MODULES = "$procedures/";
const AROUND = new Set(["name", "since", "valid"]);

let prepare;

/** Wires the view; `edit(text)` offers a transaction to be sent. */
export function startProcedures(edit) {
  prepare = edit;
  byId("declare").addEventListener("click", () => prepare(JSON.stringify({
    constrain: { declare: { name: "not-negative", prefix: `${home(facts.write)}acct/`, type: "number", min: 0 } } })));
}

/** Forgets what another token may not see. */
export function forgetProcedures() {
  put(byId("modules"));
  put(byId("constraints"));
}

/** Shows what is deployed and declared now. */
export async function showProcedures() {
  await known();
  await Promise.all([fill(byId("modules"), modules), fill(byId("constraints"), constraints)]);
}

/** Puts rows into a list, or says why there are none. */
async function fill(list, ask) {
  try {
    put(list, ...await ask());
  } catch (error) {
    put(list, el("li", { class: "hint" }, error.status === 403 ? "This token may not see them." : words(error)));
  }
}

/** The deployed modules: [name, their value, seq]. */
export async function deployed() {
  const found = [];
  const { seq } = await database().read([], { ...fresh(), timeoutS: READ_S });
  for await (const { key, value, version } of database().scan(MODULES, { at: seq, timeoutS: READ_S })) {
    found.push({ name: key.slice(MODULES.length), value, version });
  }
  return found;
}

async function modules() {
  const rows = (await deployed()).map(({ name, value, version }) => el("li", { class: "entry" },
    el("h4", {}, visible(name)),
    el("p", { class: "hint" }, `since seq ${version} · `, el("code", {}, value.get("hash")?.plain() ?? "")),
    el("ul", { class: "calls" }, ...value.get("procedures").parts.map(([procedure, args]) =>
      callable(`${name}.${procedure}`, args.plain())))));
  return rows.length ? rows : [hint("None is deployed. ", "streamydb procedures deploy bank.py")];
}

/** A procedure with a button that prepares a call of it. */
function callable(procedure, names) {
  const args = Object.fromEntries(names.map((name) => [name, ""]));
  const offer = () => prepare(JSON.stringify({ call: { procedure, args, keys: [] } }));
  return el("li", {}, el("code", {}, `${visible(procedure)}(${names.map(visible).join(", ")})`),
    el("button", { type: "button", class: "quiet", "data-write": true, hidden: !facts.writes, onclick: offer }, "Call…"));
}

async function constraints() {
  const { text } = await call("GET", path("constraints", null, { consistency: facts.strong ? "" : "snapshot" }));
  const rows = parse(text).get("constraints").parts.map(([name, entry]) => el("li", { class: "entry" },
    el("h4", {}, visible(name)),
    el("p", { class: "hint" },
      `since seq ${entry.get("since").text} · ${entry.get("valid") ? "valid: all data keep it" : "new writes keep it"}`),
    rules(entry),
    el("button", { type: "button", class: "quiet", "data-write": true, hidden: !facts.writes,
      onclick: () => prepare(JSON.stringify({ constrain: { drop: name } })) }, "Drop…")));
  return rows.length ? rows : [hint("None is declared.")];
}

/** What a constraint demands, rule by rule. */
function rules(entry) {
  const shown = entry.parts.filter(([name]) => !AROUND.has(name));
  return el("dl", {}, ...shown.flatMap(([name, rule]) => [
    el("dt", {}, name), el("dd", {}, rule.kind === "string" ? visible(rule.plain()) || "all keys" : rule.text)]));
}

const hint = (text, command) => el("li", { class: "hint" }, text, command ? el("code", {}, command) : null);
