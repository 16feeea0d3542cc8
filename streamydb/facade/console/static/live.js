// The view of live figures, and the state in the header.

import { call, path } from "./api.js";
import { byId, say, visible } from "./dom.js";
import { count, duration, exact } from "./format.js";
import { Bars, LinePlot } from "./plots.js";

const WINDOW_MS = 300_000;

function lines(title, format, note, series) {
  const made = series.map(([name, key]) => ({ name, key }));
  return new LinePlot(title, { series: made, format, windowMs: WINDOW_MS, note });
}

const plots = [
  lines("Throughput", count, "Transactions that became visible, of all clients; requests of this facade.",
    [["transactions/s", "transactions_per_s"], ["requests/s", "requests_per_s"]]),
  lines("Watermark age", duration, "The present less the commit time of the last resolved transaction, the newest that reads show; it grows while nobody writes.",
    [["age", "watermark_age_ms"]]),
  lines("Latency of transactions", duration, "From a request's arrival at this facade to the end of its answer with the verdict.",
    [["p50", "write_p50_ms"], ["p99", "write_p99_ms"]]),
  lines("Latency of reads", duration, "The same for reads; strong ones wait until the read model has come to the end of the log.",
    [["p50", "read_p50_ms"], ["p99", "read_p99_ms"]]),
  lines("Log lag", count, "Records of the log that reads do not show yet, and those the pipeline has not read.",
    [["not visible", "log_lag"], ["not read", "pipeline_lag"]]),
  lines("Micro-batch time", duration, "The last micro-batch of the pipeline, from its status file if that is on this machine.",
    [["batch", "batch_ms"]]),
];
const groups = new Bars("Conflict groups", {
  place: "groups",
  unit: "transactions",
  empty: "No writes in the last minute.",
  note: "Transactions by the size of their group. Estimated from the change feed: within a resolved interval, transactions that wrote a common key count as one group. Reads, checks and aborted transactions are not seen.",
});
const hot = new Bars("Hot keys", {
  place: "hot",
  unit: "writes",
  empty: "No writes in the last minute.",
  note: "Keys by number of writes in the last minute, from the change feed.",
});

let samples = [];

export function startLive() {
  byId("cards").append(...plots.map((plot) => plot.element), groups.element, hot.element);
}

export function forgetLive() {
  samples = [];
  groups.show([], "");
  hot.show([], "");
}

/** Asks for what is new and shows it; `choose` is called with a key that is clicked. */
export async function refreshLive(choose) {
  const newest = samples.at(-1)?.t_ms;
  const { text } = await call("GET", path("stats", null, { after_ms: newest }));
  const stats = JSON.parse(text);
  const from = stats.now_ms - WINDOW_MS;
  const kept = samples.filter(({ t_ms }) => t_ms >= from && t_ms <= stats.now_ms); // its clock may have been set back
  const last = kept.at(-1)?.t_ms ?? 0; // another answer may have come meanwhile
  samples = [...kept, ...stats.samples.filter(({ t_ms }) => t_ms > last)];
  for (const plot of plots) plot.show(samples, stats.now_ms);
  showContention(stats, choose);
  return stats;
}

function showContention(stats, choose) {
  const { changes, examined } = stats.observed;
  const part = examined < changes ? ` · ${count((100 * examined) / changes)}% of changes examined` : "";
  groups.show(stats.groups.map(({ low, high, groups: number, transactions }) => ({
    label: low === high ? (low === 1 ? "alone" : `${low} together`) : `${count(low)}–${count(high)} together`,
    value: transactions,
    text: number === transactions ? count(transactions) : `${count(transactions)} in ${count(number)} ${number === 1 ? "group" : "groups"}`,
  })), stats.largest_group ? `largest ${exact(stats.largest_group)}${part}` : "");
  const hidden = stats.hidden_keys ? `${exact(stats.hidden_keys)} keys hidden from this token` : "";
  hot.show(stats.hot_keys.map(({ key, writes }) => ({
    label: visible(key), value: writes, text: count(writes), choose: () => choose(key),
  })), hidden);
}

/** Shows the state in the header. */
export function showState(stats) {
  const { pipeline, health, database } = stats;
  say(byId("database"), database);
  byId("chip-database").hidden = !database;
  document.title = database ? `${database} · streamy-db` : "streamy-db console";
  byId("state-dot").dataset.state = health.status === "ready" ? "good" : "bad";
  say(byId("state"), health.status === "ready" ? "live" : health.writes ? "degraded" : "no writes");
  say(byId("chip-seq"), exact(stats.seq));
  say(byId("chip-age"), stats.seq ? duration(Math.max(0, stats.now_ms - stats.ts_ms)) : "–");
  say(byId("chip-pipeline"), pipeline ? pipeline.state : "not on this machine");
}

/** Shows in the header that there is nothing to show. */
export function showLost(words) {
  byId("state-dot").dataset.state = "bad";
  say(byId("state"), words);
  for (const chip of ["chip-seq", "chip-age", "chip-pipeline"]) say(byId(chip), "–");
}

/** Tells in words what is wrong, and of when the reads are; empty if all is well. */
export function trouble({ status, strong, age_s, why }) {
  if (status === "ready") return "";
  const old = strong ? "" : ` Reads show the state of ${duration(1000 * age_s)} ago.`;
  return `${why.join("; ")}.${old}`;
}
