// The view of the pipelines that execute the database: who leads, who follows, and their digests.

import { call, path } from "./api.js";
import { byId, el, put, say, visible } from "./dom.js";
import { count, duration, exact } from "./format.js";
import { wideTable } from "./tables.js";

const AGAIN_MS = 3_000;
const GOOD = new Set(["running", "leading"]);

let timer;
let turn = 0;

/** Asks again and again while somebody looks. */
export async function showPipelines() {
  const mine = (turn += 1);
  clearTimeout(timer);
  try {
    const told = JSON.parse((await call("GET", path("pipelines", null))).text);
    if (mine !== turn) return;
    say(byId("pipelines-status"), told.why.join("; "));
    put(byId("pipelines-here"), here(told), elsewhere(told));
    put(byId("digests"), digests(told));
  } catch (problem) {
    if (mine === turn) say(byId("pipelines-status"), problem.message);
  }
  if (mine === turn) timer = setTimeout(showPipelines, AGAIN_MS);
}

/** Stops asking. */
export function hidePipelines() {
  turn += 1;
  clearTimeout(timer);
}

/** Forgets what another token may not see. */
export function forgetPipelines() {
  hidePipelines();
  put(byId("pipelines-here"));
  put(byId("digests"));
  say(byId("pipelines-status"), "");
}

const state = (text, good) => el("span", { class: "badge", "data-state": good ? "good" : "warn" }, text);
const called = (name) => (name ? visible(name) : "no name");

function here({ here: found }) {
  if (!found.length) return el("p", { class: "hint" }, "No pipeline was started from the folder that this facade uses.");
  const rows = found.map((each) => [
    called(each.name), state(each.state, GOOD.has(each.state)), each.role ?? "–", each.epoch === null ? "–" : String(each.epoch),
    each.resolved === null ? "–" : exact(each.resolved),
    each.role === "following" ? `${each.ready ? "ready" : "not ready"}, ${each.behind === null ? "?" : count(each.behind)} seqs, ${duration(each.lag_ms)} behind` : `${count(each.lag)} records unread`,
    each.alarm ?? "–"]);
  return wideTable("On this machine", ["name", "state", "part", "epoch", "resolved seq", "how far", "trouble"], rows, "pipelines");
}

function elsewhere({ heard }) {
  if (heard === null) return null;
  if (!heard.length) return el("p", { class: "hint" }, "No pipeline was heard in Kafka in the last half minute.");
  const rows = heard.map((each) => [
    called(each.name), state(each.role, each.ready), String(each.epoch), exact(each.resolved), `${each.age_s.toFixed(1)} s ago`, each.pipeline.slice(0, 8)]);
  return wideTable("Heard in Kafka, wherever they run", ["name", "part", "epoch", "resolved seq", "heard", "checkpoint"], rows, "pipelines");
}

function digests({ digests: found }) {
  if (found === null) return null;
  if (!found.length) return el("p", { class: "hint" }, "None was told yet: each is of an interval of transactions, which has to be over.");
  const rows = found.map(({ seq, shard, told }) => {
    const several = new Set(told.map((each) => `${each.state} ${each.outcomes}`)).size > 1;
    const judged = several ? "they differ" : told.length > 1 ? "agree" : "told by one";
    return [exact(seq), String(shard), el("span", { class: "badge", "data-state": several ? "bad" : told.length > 1 ? "good" : "wait" }, judged),
      told.map((each) => each.pipeline.slice(0, 8)).join(", "), told.map((each) => each.state).filter((each, at, all) => all.indexOf(each) === at).join(" / ")];
  });
  return wideTable("Of the state of each shard, the newest first", ["seq", "shard", "pipelines", "checkpoints", "state"], rows, "digests");
}
