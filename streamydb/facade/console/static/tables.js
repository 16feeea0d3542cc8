// Tables of texts.

import { el } from "./dom.js";

/** A table with a caption, heads and rows; a cell is a text or an element. */
export function table(caption, heads, rows, name) {
  return el("table", { class: name }, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, cell))))));
}

/** The same in a box that scrolls by itself if it is too wide. */
export function wideTable(caption, ...rest) {
  const box = { class: "scroll", tabindex: "0", role: "region", "aria-label": caption };
  return el("div", box, table(caption, ...rest));
}
