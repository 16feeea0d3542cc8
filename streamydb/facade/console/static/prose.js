// Text with names between backticks.

import { el } from "./dom.js";

/** The parts of a text: what stands between backticks is code. */
export const prose = (text) =>
  text.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part)).filter((part) => part !== "");
