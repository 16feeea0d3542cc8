// The view of the pipelines that execute the database: who leads, who follows, and their digests.

import { call, path } from "./api.js";
import { byId, el, put, say, visible } from "./dom.js";
import { count, duration, exact } from "./format.js";
import { wideTable } from "./tables.js";

const AGAIN_MS = 3_000;

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
const shown = (seq) => (seq === null ? "–" : exact(seq));
const short = (pipeline) => visible(pipeline.slice(0, 8));

function here({ here: found }) {
  if (!found.length) return el("p", { class: "hint" }, "No pipeline was started from the folder that this facade uses.");
  const heads = ["name", "state", "part", "epoch", "resolved seq", "how far", "gear", "trouble"];
  return wideTable("On this machine", heads, found.map((each) => [
    called(each.name), state(each.state, each.state === "running"), each.role ?? "–", shown(each.epoch),
    shown(each.resolved), progress(each), gearOf(each.gear), each.alarm ?? "–"]), "pipelines");
}

function progress({ role, ready, behind, lag, lag_ms }) {
  if (role !== "following") return `${count(lag)} records unread`;
  return `${ready ? "ready" : "not ready"}, ${count(behind)} seqs and ${duration(lag_ms)} behind`;
}

/** Says which gear of a pipeline leads, or why it has one only. */
function gearOf(gear) {
  if (!gear) return "–";
  if (gear.obstacle !== null) return `${gear.gear}; no real-time gear: ${gear.obstacle}`;
  const behind = gear.behind === null ? "" : `; the other one ${count(gear.behind)} seqs behind`;
  return `${gear.gear} since ${new Date(gear.since_ms).toLocaleTimeString()}: ${gear.why}${behind}`;
}

function elsewhere({ heard }) {
  if (heard === null) return null;
  if (!heard.length) return el("p", { class: "hint" }, "No pipeline was heard in Kafka in the last half minute.");
  const heads = ["name", "part", "epoch", "resolved seq", "gear", "heard", "checkpoint"];
  return wideTable("Heard in Kafka, wherever they run", heads, heard.map((each) => [
    called(each.name), state(each.role, each.ready), shown(each.epoch), shown(each.resolved),
    gearOf(each.gear), `${each.age_s.toFixed(1)} s ago`, short(each.pipeline)]), "pipelines");
}

function digests({ digests: found }) {
  if (found === null) return null;
  if (!found.length) {
    return el("p", { class: "hint" }, "None was told yet: each is of an interval of transactions, which has to be over.");
  }
  const heads = ["seq", "shard", "pipelines", "checkpoints", "state"];
  return wideTable("Of the state of each shard, the newest first", heads, found.map(({ seq, shard, told }) => [
    shown(seq), String(shard), judged(told), told.map(({ pipeline }) => short(pipeline)).join(", "),
    [...new Set(told.map((each) => each.state))].join(" / ")]), "digests");
}

/** Says whether pipelines agree on one shard at one seq. */
function judged(told) {
  const versions = new Set(told.map(({ state: held, outcomes }) => `${held} ${outcomes}`)).size;
  if (versions > 1) return el("span", { class: "badge", "data-state": "bad" }, "they differ");
  return told.length > 1 ? state("agree", true) : el("span", { class: "badge" }, "told by one");
}
