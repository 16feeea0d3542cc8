// The versions of a key, newest first.

import { call, path } from "./api.js";
import { el, visible } from "./dom.js";
import { facts } from "./facts.js";
import { moment, preview } from "./format.js";
import { parse } from "./json.js";

/** Fills a list with the versions up to a seq (null: all); `actions` has choose(seq) and lookUp(id). */
export async function extend(list, key, upTo, actions) {
  if (key === "." || key === "..") {
    list.replaceChildren(el("li", { class: "hint" }, "Browsers cannot ask for the history of a key of dots."));
    return;
  }
  const lines = upTo === null ? [] : [...list.children];
  try {
    const asked = upTo === null ? { consistency: facts.strong ? "" : "snapshot" } : { at: upTo };
    const page = parse((await call("GET", path("history", key, asked))).text);
    const versions = page.get("versions").parts;
    lines.push(...versions.map((version) => line(version, actions)));
    if (!versions.length) lines.push(el("li", { class: "hint" }, "No version is kept up to here."));
    if (page.get("more").plain()) lines.push(older(list, key, versions.at(-1), actions));
  } catch (problem) {
    lines.push(el("li", { class: "hint" }, problem.message));
  }
  list.replaceChildren(...lines);
}

/** Marks the version that is the state at a seq. */
export function mark(list, seq) {
  const lines = [...list.querySelectorAll("[data-version]")];
  const shown = lines.find((each) => Number(each.dataset.version) <= seq);
  for (const each of lines) {
    if (each === shown) each.setAttribute("aria-current", "true");
    else each.removeAttribute("aria-current");
  }
}

function older(list, key, last, actions) {
  const item = el("li", {}, el("button", { type: "button", class: "quiet", onclick: () => {
    item.remove();
    extend(list, key, (BigInt(last.get("version").text) - 1n).toString(), actions);
  } }, "Older versions"));
  return item;
}

function line(version, { choose, lookUp }) {
  const seq = version.get("version").text;
  const id = version.get("txn_id").plain();
  const deleted = version.get("deleted").plain();
  const ends = version.get("expires_ms");
  return el("li", { class: "line", "data-version": seq },
    el("button", { type: "button", class: "link seq", title: "Show the state at this seq", onclick: () => choose(seq) }, `seq ${seq}`),
    el("span", { class: "meta" }, moment(version.get("ts_ms").plain()), ends ? ` · ends ${moment(ends.plain())}` : ""),
    el("span", { class: deleted ? "preview deleted" : "preview" }, deleted ? "deleted" : preview(version.get("value").text)),
    el("button", { type: "button", class: "link id", title: "Look up the transaction", onclick: () => lookUp(id) }, visible(id)));
}
