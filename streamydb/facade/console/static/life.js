// The life of a transaction, fetched when somebody wants to see it.

import { call, path } from "./api.js";
import { el, put, visible } from "./dom.js";
import { moment } from "./format.js";
import { parse } from "./json.js";
import { wideTable } from "./tables.js";

/** A part that is closed at first. */
export function lifeOf(id) {
  const place = el("div", { class: "life" });
  let asked = false;
  const fetched = async (event) => {
    if (!event.target.open || asked) return;
    asked = true;
    put(place, el("p", { class: "hint" }, "Looking into the log …"));
    try {
      put(place, ...shown(parse((await call("GET", path("explanations", id))).text)));
    } catch (problem) {
      asked = false;
      put(place, el("p", { class: "notice" }, problem.message));
    }
  };
  return el("details", { ontoggle: fetched }, el("summary", { class: "life-summary" }, "Its life"), place);
}

const items = (read, name) => read.get(name)?.parts ?? [];
const plain = (read, name) => read.get(name)?.plain() ?? null;
const text = (read, name) => read.get(name)?.text ?? "null";
const time = (read, name) => (plain(read, name) === null ? "not known" : moment(Number(plain(read, name))));
const key = (read) => visible(String(plain(read, "key")));
const known = (read, name) => (plain(read, "hidden") ? "hidden" : text(read, name));

function fate(append, life) {
  if (plain(append, "executed")) return "";
  return text(append, "seq") === text(life.get("order"), "seq") ? " (not executed)" : " (a copy)";
}

function shown(life) {
  const parts = [
    rows(life, "appends", "Appended", ["place", "seq", "appended", "result written", "times"], (each) => [
      `${plain(each, "partition")}:${plain(each, "offset")}${fate(each, life)}`,
      text(each, "seq"), time(each, "appended_ms"), time(each, "result_written_ms"), text(each, "times")]),
    el("p", {}, order(life.get("order"))),
    el("p", {}, plan(life.get("plan"))),
    group(life.get("plan")),
    rows(life, "met", "Values met", ["key", "value", "version", "known by"], (each) => [
      key(each), known(each, "value"), known(each, "version"), String(plain(each, "known"))]),
    rows(life, "checks", "Checks", ["check", "key", "wanted", "holds"], (each) => [
      `${plain(each, "check")} ${plain(each, "index")}`, key(each), known(each, "wanted"), outcome(plain(each, "holds"))]),
    rows(life, "writes", "Writes", ["key", "before", "after", "written"], (each) => [
      key(each), known(each, "before"), known(each, "after"), time(each, "written_ms")]),
    unknown(life.get("unknown")),
  ];
  return parts.filter((part) => part !== null);
}

function rows(life, name, caption, heads, cells) {
  const found = items(life, name);
  return found.length ? wideTable(caption, heads, found.map(cells), name) : null;
}

const outcome = (holds) => (holds === null ? "not known" : holds ? "yes" : "no");

const order = (read) => `Seq ${text(read, "seq")}, committed at ${time(read, "ts_ms")}; ` +
  `all partitions had passed it: ${time(read, "released_ms")}.`;

function plan(read) {
  if (read.isNull) return "Its plan is not known.";
  const place = `Plan ${text(read, "number")}, seq ${text(read, "first")} to ${text(read, "last")}`;
  const found = read.get("group");
  if (found.isNull) return `${place}.`;
  return `${place}; conflict group of ${text(found, "transactions")}: ${text(found, "waited_for")} were executed ` +
    `before it, ${text(found, "waited")} after it.`;
}

function group(read) {
  if (read.isNull || read.get("group").isNull) return null;
  return rows(read.get("group"), "members", "The nearest of its group", ["seq", "id", "keys in common"], (each) => [
    text(each, "seq"), visible(String(plain(each, "id") ?? "hidden")),
    items(each, "keys").map((part) => visible(String(part.plain()))).join(", ") || "through others"]);
}

function unknown(read) {
  if (!read.parts.length) return null;
  return el("dl", {}, ...read.parts.flatMap(([part, why]) => [el("dt", {}, part), el("dd", {}, String(why.plain()))]));
}
