// The view of streams: what procedures emitted, from the beginning or after a place, and what comes.

import { call, path } from "./api.js";
import { byId, el, put, say, visible } from "./dom.js";
import { facts, known } from "./facts.js";
import { exact, moment, preview } from "./format.js";
import { parse } from "./json.js";
import { deployed } from "./procedures.js";

const ROWS = 500;
const LIMIT = 100;
const WAIT_S = 10;
const SCOPE = "$streams/";

let reading = null;

export function startStreams() {
  byId("stream").addEventListener("submit", (event) => {
    event.preventDefault();
    if (reading) stop("Stopped");
    else read();
  });
}

/** Forgets what another token may not see. */
export function forgetStreams() {
  stop("");
  put(byId("records"));
  put(byId("stream-names"));
}

/** Offers names to begin with: of modules that are deployed, and of the token's scopes. */
export async function showStreams() {
  await known();
  const scopes = facts.read.filter((scope) => scope.startsWith(SCOPE)).map((scope) => scope.slice(SCOPE.length));
  const modules = await deployed().catch(() => []);
  const names = new Set([...scopes, ...modules.map(({ name }) => `${name}.`)]);
  put(byId("stream-names"), ...[...names].map((name) => el("option", { value: name })));
}

function stop(said) {
  reading?.abort();
  reading = null;
  byId("stream-button").textContent = "Read";
  say(byId("stream-status"), said);
}

async function read() {
  const mine = (reading = new AbortController());
  const name = byId("stream-name").value.trim();
  const list = byId("records");
  byId("stream-button").textContent = "Stop";
  say(byId("stream-status"), "Reading …");
  put(list);
  let asked = { after: byId("stream-after").value.trim(), limit: LIMIT };
  let seen = 0;
  try {
    while (reading === mine) {
      const { text } = await call("GET", path("streams", name, asked), { signal: mine.signal });
      const page = parse(text);
      const rows = page.get("records").parts.map(row);
      seen += rows.length;
      list.prepend(...rows.reverse());
      while (list.children.length > ROWS) list.lastChild.remove();
      const more = page.get("more").plain();
      say(byId("stream-status"), `${exact(seen)} ${seen === 1 ? "record" : "records"}${more ? "" : " · waiting for more"}`);
      asked = { cursor: page.get("cursor").plain(), limit: LIMIT, wait: more ? "" : WAIT_S };
    }
  } catch (problem) {
    if (reading === mine) stop(problem.message);
  }
}

function row(node) {
  return el("li", { class: "line" },
    el("span", { class: "seq" }, `seq ${node.get("seq").text}.${node.get("index").text}`),
    el("span", { class: "id" }, visible(node.get("id").plain())),
    el("span", { class: "meta" }, moment(node.get("ts_ms").plain())),
    el("span", { class: "preview" }, preview(node.get("record").text)));
}
