// The view of SQL: one SELECT over all keys, or a transaction on tables; rows as a table or a plot.

import { call, path } from "./api.js";
import { Chart } from "./charts.js";
import { byId, el, put, say, visible } from "./dom.js";
import { fresh } from "./facts.js";
import { exact } from "./format.js";
import { parse } from "./json.js";
import { statements } from "./statements.js";
import { wideTable } from "./tables.js";

const ROWS = 500;
const LABELS = {
  keys: "One SELECT over kv(key, value, version, ts): all keys of one snapshot",
  tables: "Statements on SQL tables; a semicolon parts them, and all of them are one transaction",
};
const ON_TABLES = {
  "Create": "create table if not exists notes (\n  id int primary key,\n  text text not null,\n  made timestamp default current_timestamp::timestamp\n)",
  "Insert": "insert into notes (id, text)\nselect coalesce(max(id), 0) + 1, 'a note' from notes\nreturning *",
  "Select": "select id, text, made\nfrom notes\norder by id desc\nlimit 100",
  "Update": "update notes set text = 'another' where id = 1;\nselect * from notes where id = 1",
};
const QUERIES = {
  "Keys": "select key, value, version, ts\nfrom kv\norder by key\nlimit 100",
  "Keys by folder": "select split_part(key, '/', 1) as folder, count(*) as keys\nfrom kv\ngroup by folder\norder by keys desc\nlimit 20",
  "Last writes by minute": "select date_trunc('minute', ts) as minute, count(*) as keys\nfrom kv\ngroup by minute\norder by minute",
  "Sizes": "select key, length(value::varchar) as characters\nfrom kv\norder by characters desc\nlimit 20",
};

const chart = new Chart();
let asking = null;
let over = "keys";

export function startSql() {
  const editor = byId("sql");
  byId("over-keys").addEventListener("click", () => choose("keys"));
  byId("over-tables").addEventListener("click", () => choose("tables"));
  choose("keys");
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("query").requestSubmit();
  });
  byId("query").addEventListener("submit", (event) => {
    event.preventDefault();
    query();
  });
  byId("as-table").addEventListener("click", () => display("table"));
  byId("as-plot").addEventListener("click", () => display("plot"));
  byId("plot").append(chart.element);
}

/** Has the view ask all keys, or tables. */
function choose(what) {
  over = what;
  const texts = what === "tables" ? ON_TABLES : QUERIES;
  put(byId("queries"), ...Object.entries(texts).map(([name, text]) =>
    el("button", { type: "button", class: "quiet", onclick: () => { byId("sql").value = text; } }, name)));
  byId("sql").value = Object.values(texts)[0];
  say(byId("sql-label"), LABELS[what]);
  for (const each of ["keys", "tables"]) byId(`over-${each}`).setAttribute("aria-pressed", String(each === what));
  byId("tables-field").hidden = what !== "tables";
  byId("prefix-field").hidden = what === "tables";
  forgetSql();
}

/** Forgets what another token may not see. */
export function forgetSql() {
  asking?.abort();
  byId("result").hidden = true;
  put(byId("rows"));
  say(byId("query-status"), "");
}

async function query() {
  const mine = new AbortController();
  asking?.abort();
  asking = mine;
  const at = byId("query-at").value.trim();
  const place = at ? { at: Number(at) } : fresh();
  const body = over === "keys"
    ? { sql: byId("sql").value, prefix: byId("query-prefix").value, ...place }
    : { tables: byId("query-tables").value || "main", statements: statements(byId("sql").value).map((sql) => ({ sql })), ...place };
  say(byId("query-status"), "Running …");
  const began = performance.now();
  try {
    const { text } = await call("POST", path(over === "keys" ? "query" : "sql", null), { body: JSON.stringify(body), signal: mine.signal });
    if (mine === asking) (over === "keys" ? show : showAll)(parse(text), performance.now() - began);
  } catch (problem) {
    if (mine !== asking) return;
    byId("result").hidden = true;
    say(byId("query-status"), problem.members?.error ?? problem.members?.violated ?? problem.message);
  }
}

/** Shows the last rows that statements gave, and what they wrote. */
function showAll(answer, ms) {
  const results = answer.get("results").parts;
  const wrote = results.filter((each) => !each.get("changed").isNull);
  const changed = wrote.reduce((sum, each) => sum + each.get("changed").plain(), 0);
  const found = results.findLast((each) => each.get("columns").parts.length);
  const many = found ? rowsOf(found) : "";
  byId("result").hidden = !found;
  const written = wrote.length ? `${exact(changed)} ${changed === 1 ? "row" : "rows"} written` : "";
  const place = `${answer.get("id").isNull ? "snapshot at" : "committed as"} seq ${answer.get("seq").text}`;
  say(byId("query-status"), [written, many, place, `${Math.round(ms)} ms`].filter(Boolean).join(" · "));
}

function show(answer, ms) {
  const many = rowsOf(answer);
  byId("result").hidden = false;
  say(byId("query-status"), `${many} · snapshot at seq ${answer.get("seq").text} · ${Math.round(ms)} ms`);
}

/** Shows the rows of an answer; returns how many there are, in words. */
function rowsOf(answer) {
  const columns = answer.get("columns").plain();
  const rows = answer.get("rows").parts.map((row) => row.parts);
  const heads = columns.map(({ name, type }) => el("span", { title: type }, visible(name)));
  const shown = rows.slice(0, ROWS).map((row) => row.map(cell));
  put(byId("rows"), wideTable("Rows of the answer", heads, shown, "result"));
  chart.show(columns, rows);
  const part = rows.length > ROWS ? `, the first ${exact(ROWS)} are shown` : "";
  return `${exact(rows.length)} ${rows.length === 1 ? "row" : "rows"}${part}`;
}

const cell = (node) => {
  if (node.isNull) return el("span", { class: "deleted" }, "null");
  return node.kind === "string" ? visible(node.plain()) : node.text;
};

function display(form) {
  byId("as-table").setAttribute("aria-pressed", String(form === "table"));
  byId("as-plot").setAttribute("aria-pressed", String(form === "plot"));
  byId("rows").hidden = form !== "table";
  byId("plot").hidden = form !== "plot";
  chart.draw();
}
