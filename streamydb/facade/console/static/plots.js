// Small plots in SVG: lines over time with a readout, and bars.

import { el, say, svg } from "./dom.js";
import { clock } from "./format.js";

const HEIGHT = 132;
const EDGE = { left: 2, right: 6, top: 14, bottom: 18 };
const GAP_MS = 2_500;
const SPAN_MIN_MS = 60_000;
const TAIL = 12;
const SHORT = 17;

/** Lines over the latest minutes; the legend shows the last values, or those pointed at. */
export class LinePlot {
  constructor(title, { series, format, windowMs, note }) {
    this.title = title;
    this.series = series;
    this.format = format;
    this.windowMs = windowMs;
    this.spanMs = windowMs;
    this.samples = [];
    this.now = 0;
    this.pointed = null;
    this.values = series.map(() => el("b", { class: "value" }, "–"));
    this.time = el("span", { class: "time" });
    this.plot = svg("svg", {
      class: "plot", height: HEIGHT, role: "img", tabindex: "0", onkeydown: (event) => this.#key(event),
      onpointermove: (event) => this.#point(event), onpointerleave: () => this.#leave(), onblur: () => this.#leave(),
    });
    const legend = series.map(({ name }, n) =>
      el("li", {}, el("span", { class: `swatch s${n}` }), el("span", {}, name), this.values[n]));
    this.empty = el("p", { class: "empty" }, "no data yet");
    this.element = el("article", { class: "card" },
      el("div", { class: "head" }, el("h3", {}, title), this.time),
      el("ul", { class: "legend" }, ...legend),
      el("div", { class: "canvas" }, this.plot, this.empty),
      el("p", { class: "hint" }, note));
    new ResizeObserver(() => this.#draw()).observe(this.plot);
  }

  /** Shows samples (oldest first) up to the time `now`. */
  show(samples, now) {
    this.samples = samples;
    this.now = now;
    const age = samples.length ? now - samples[0].t_ms : 0;
    this.spanMs = Math.min(this.windowMs, Math.max(SPAN_MIN_MS, age));
    this.#draw();
  }

  #x(ms) {
    return EDGE.left + (1 - (this.now - ms) / this.spanMs) * (this.width - EDGE.left - EDGE.right);
  }

  #y(value) {
    return HEIGHT - EDGE.bottom - (value / this.top) * (HEIGHT - EDGE.top - EDGE.bottom);
  }

  #draw() {
    this.width = this.plot.getBoundingClientRect().width;
    if (!this.width) return;
    const seen = this.series.flatMap(({ key }) => this.samples.map((each) => each[key] ?? 0));
    this.top = ceiling(Math.max(0, ...seen));
    this.plot.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.plot.replaceChildren(...this.#grid(), ...this.series.map((each, n) => this.#line(each, n)), ...this.#cross());
    this.empty.hidden = this.series.some(({ key }) => this.samples.some((each) => each[key] !== undefined));
    this.#read();
  }

  #grid() {
    const rows = [0, 0.5, 1].flatMap((share) => {
      const y = this.#y(share * this.top);
      return [
        svg("line", { class: "grid", x1: 0, x2: this.width, y1: y, y2: y }),
        share ? svg("text", { x: 0, y: y - 4 }, this.format(share * this.top)) : null,
      ];
    });
    const base = HEIGHT - 4;
    return [...rows.filter(Boolean),
      svg("text", { x: 0, y: base }, `−${span(this.spanMs)}`),
      svg("text", { x: this.width - EDGE.right, y: base, "text-anchor": "end" }, "now")];
  }

  #line({ key }, number) {
    let path = "";
    let last = -Infinity;
    for (const sample of this.samples) {
      const value = sample[key];
      if (value === undefined) continue;
      const place = `${this.#x(sample.t_ms).toFixed(1)} ${this.#y(value).toFixed(1)}`;
      path += sample.t_ms - last > GAP_MS ? `M${place}h0.01` : `L${place}`;
      last = sample.t_ms;
    }
    const alone = path.match(/M[^ML]+(?![^M]*L)/g)?.join("") ?? "";
    return svg("g", {}, svg("path", { class: `trace s${number}`, d: path || "M0 0" }),
      svg("path", { class: `trace alone s${number}`, d: alone || "M0 0" }));
  }

  #cross() {
    const sample = this.pointed;
    if (sample === null) return [];
    const x = this.#x(sample.t_ms);
    const marks = this.series.map(({ key }, n) => sample[key] === undefined ? null
      : svg("circle", { class: `mark s${n}`, cx: x, cy: this.#y(sample[key]), r: 4 }));
    return [svg("line", { class: "cross", x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom }), ...marks.filter(Boolean)];
  }

  #read() {
    const sample = this.pointed ?? this.#last();
    const shown = this.series.map(({ key }) => this.format(sample?.[key]));
    shown.forEach((text, n) => say(this.values[n], text));
    say(this.time, this.pointed ? clock(this.pointed.t_ms) : "");
    const words = this.series.map(({ name }, n) => `${name} ${shown[n]}`).join(", ");
    this.plot.setAttribute("aria-label", `${this.title}${this.pointed ? " at " + clock(this.pointed.t_ms) : ""}: ${words}`);
  }

  /** The newest sample with a value, not older than some seconds. */
  #last() {
    return this.samples.findLast((each) => this.now - each.t_ms < 8_000
      && this.series.some(({ key }) => each[key] !== undefined)) ?? this.samples.at(-1);
  }

  #point(event) {
    const share = (event.clientX - this.plot.getBoundingClientRect().left - EDGE.left) / (this.width - EDGE.left - EDGE.right);
    const wanted = this.now - (1 - share) * this.spanMs;
    const near = (best, each) => Math.abs(each.t_ms - wanted) < Math.abs(best.t_ms - wanted) ? each : best;
    this.pointed = this.samples.length ? this.samples.reduce(near) : null;
    this.#draw();
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 }[event.key];
    if (event.key === "Escape") this.#leave();
    if (step === undefined || !this.samples.length) return;
    event.preventDefault();
    const at = this.pointed ? this.samples.findIndex((each) => each.t_ms >= this.pointed.t_ms) : this.samples.length;
    this.pointed = this.samples[Math.min(this.samples.length - 1, Math.max(0, at + step))];
    this.#draw();
  }

  #leave() {
    this.pointed = null;
    this.#draw();
  }
}

/** Horizontal bars. */
export class Bars {
  constructor(title, { note, empty, unit, place }) {
    this.list = el("ol", { class: "bars" });
    this.figure = el("span", { class: "time" });
    this.empty = el("p", { class: "hint" }, empty);
    this.unit = unit;
    this.note = el("p", { class: "hint" }, note);
    this.element = el("article", { class: `card ${place}` },
      el("div", { class: "head" }, el("h3", {}, title), this.figure), this.list, this.empty, this.note);
  }

  /** Shows rows {label, value, text, choose}. */
  show(rows, figure) {
    const most = Math.max(1, ...rows.map(({ value }) => value));
    const focused = this.list.contains(document.activeElement) ? document.activeElement.title : null;
    this.list.replaceChildren(...rows.map((row) => this.#row(row, most)));
    if (focused) [...this.list.querySelectorAll("button")].find((each) => each.title === focused)?.focus();
    this.empty.hidden = rows.length > 0;
    say(this.figure, figure);
  }

  #row({ label, value, text, choose }, most) {
    const name = choose
      ? el("button", { type: "button", class: "link cut", title: label, "aria-label": label, onclick: choose }, ...cut(label))
      : el("span", { class: "cut", title: label }, ...cut(label));
    const bar = el("span", { class: "bar" });
    bar.style.width = `${(100 * value) / most}%`;
    return el("li", {}, el("span", { class: "name" }, name), el("span", { class: "track" }, bar),
      el("span", { class: "number" }, text, el("span", { class: "off" }, ` ${this.unit}`)));
  }
}

/** The beginning and the end of a name: where there is no room for all, the beginning is cut short. */
function cut(label) {
  const signs = Array.from(label);
  if (signs.length < SHORT) return [el("span", {}, label)];
  return [signs.slice(0, -TAIL), signs.slice(-TAIL)].map((part) => el("span", {}, part.join("")));
}

const span = (ms) => (ms < 120_000 ? `${Math.round(ms / 1_000)} s` : `${Math.round(ms / 60_000)} min`);

/** The smallest round number above. */
export function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((each) => each * power).find((each) => each >= value);
}
