// The view of queries: one SELECT, its rows as a table or a plot.

import { call, path } from "./api.js";
import { Chart } from "./charts.js";
import { byId, el, put, say, visible } from "./dom.js";
import { fresh } from "./facts.js";
import { exact } from "./format.js";
import { parse } from "./json.js";
import { wideTable } from "./tables.js";

const ROWS = 500;
const QUERIES = {
  "Keys": "select key, value, version, ts\nfrom kv\norder by key\nlimit 100",
  "Keys by folder": "select split_part(key, '/', 1) as folder, count(*) as keys\nfrom kv\ngroup by folder\norder by keys desc\nlimit 20",
  "Last writes by minute": "select date_trunc('minute', ts) as minute, count(*) as keys\nfrom kv\ngroup by minute\norder by minute",
  "Sizes": "select key, length(value::varchar) as characters\nfrom kv\norder by characters desc\nlimit 20",
};

const chart = new Chart();
let asking = null;

export function startSql() {
  const editor = byId("sql");
  byId("queries").append(...Object.entries(QUERIES).map(([name, text]) =>
    el("button", { type: "button", class: "quiet", onclick: () => { editor.value = text; } }, name)));
  editor.value = QUERIES.Keys;
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
  const body = { sql: byId("sql").value, prefix: byId("query-prefix").value, ...(at ? { at: Number(at) } : fresh()) };
  say(byId("query-status"), "Running …");
  const began = performance.now();
  try {
    const { text } = await call("POST", path("query", null), { body: JSON.stringify(body), signal: mine.signal });
    if (mine === asking) show(parse(text), performance.now() - began);
  } catch (problem) {
    if (mine !== asking) return;
    byId("result").hidden = true;
    say(byId("query-status"), problem.members?.error ?? problem.message);
  }
}

function show(answer, ms) {
  const columns = answer.get("columns").plain();
  const rows = answer.get("rows").parts.map((row) => row.parts);
  const heads = columns.map(({ name, type }) => el("span", { title: type }, visible(name)));
  const shown = rows.slice(0, ROWS).map((row) => row.map(cell));
  put(byId("rows"), wideTable("Rows of the answer", heads, shown, "result"));
  chart.show(columns, rows);
  byId("result").hidden = false;
  const part = rows.length > ROWS ? `, the first ${exact(ROWS)} are shown` : "";
  const many = `${exact(rows.length)} ${rows.length === 1 ? "row" : "rows"}${part}`;
  say(byId("query-status"), `${many} · snapshot at seq ${answer.get("seq").text} · ${Math.round(ms)} ms`);
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
