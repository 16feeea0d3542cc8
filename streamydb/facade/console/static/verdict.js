// Shows what became of a transaction, in the place where it was asked for.

import { call, path } from "./api.js";
import { words } from "./database.js";
import { el, put, visible } from "./dom.js";
import { moment } from "./format.js";
import { parse, pretty } from "./json.js";
import { lifeOf } from "./life.js";
import { table } from "./tables.js";

const MARKS = { committed: "good", aborted: "warn", refused: "bad", unknown: "wait" };

/** Waits in a place for what `ask` answers, and shows it there. */
export async function showOutcome(place, said, ask) {
  answer(place, el("p", { class: "hint" }, said));
  try {
    const found = await ask();
    answer(place, ...verdict("committed", found), ...more(found.id));
  } catch (error) {
    answer(place, ...failure(place, error));
  }
}

/** Shows parts, and where they are: on a narrow page that may be out of sight. */
function answer(place, ...parts) {
  put(place, ...parts);
  const { top } = place.getBoundingClientRect();
  if (top > 0.9 * innerHeight) place.scrollIntoView({ block: "center" });
}

function failure(place, error) {
  if (typeof error.ask === "function") {
    const again = () => showOutcome(place, "Looking for the verdict …", () => error.ask());
    return [el("p", {}, badge("unknown"), " ", words(error)),
      el("button", { type: "button", onclick: again }, "Ask again")];
  }
  if (Array.isArray(error.failed)) return [...verdict("aborted", { ...error.members, ...error, reads: null }), ...more(error.id)];
  if (error.code) return [...verdict("refused", error), el("p", { class: "notice" }, error.detail)];
  return [el("p", { class: "notice" }, words(error))];
}

const badge = (status) => el("span", { class: "badge", "data-state": MARKS[status] }, status);

function verdict(status, found) {
  return [
    el("p", { class: "verdict-head" }, badge(status), found.code ? el("code", {}, found.code) : null),
    facts(found), failedTable(found.failed ?? []), readsTable(found.reads?.parts ?? []),
  ];
}

function facts({ id, seq, tsMs, repeated, returned, reason }) {
  const rows = [
    ["id", id && visible(id)],
    ["seq", seq || null],
    ["time", tsMs && moment(tsMs)],
    ["returned", returned?.text],
    ["reason", reason],
    ["repeated", repeated ? "sent before; this is the verdict of then" : null],
  ].filter(([, text]) => text);
  return el("dl", {}, ...rows.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
}

function failedTable(failed) {
  if (!failed.length) return null;
  return table("What did not hold", ["what", "key", "value met", "version"], failed.map((each) => [
    each.constraint ? `constraint ${each.constraint}: ${each.violated}` : `${each.check} ${each.index}`,
    visible(each.key), each.truncated ? "not shown" : each.value?.text ?? "null", String(each.version),
  ]), "failed");
}

function readsTable(reads) {
  if (!reads.length) return null;
  return table("Values read", ["key", "value"], reads.map(([key, value]) => [visible(key), value.text]), "reads");
}

const more = (id) => (id ? [whole(id), lifeOf(id)] : []);

/** The result as it is in the database, fetched when somebody wants to see it. */
function whole(id) {
  const place = el("pre", { class: "json", tabindex: "0" }, "…");
  const fetched = async (event) => {
    if (!event.target.open || place.textContent !== "…") return;
    try {
      place.textContent = pretty(parse((await call("GET", path("transactions", id))).text));
    } catch (problem) {
      place.textContent = problem.message;
    }
  };
  return el("details", { ontoggle: fetched }, el("summary", {}, "The whole result"), place);
}
