// A plot of a query's rows: the first column along, the numeric ones up.

import { el, put, svg, visible } from "./dom.js";
import { count } from "./format.js";
import { Bars, ceiling } from "./plots.js";

const HEIGHT = 280;
const EDGE = { left: 4, right: 8, top: 16, bottom: 20 };
const SERIES = 4;
const BARS = 50;
const NUMERIC = /^(?:U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?|FLOAT|DOUBLE|REAL|DECIMAL)/;
const TIME = /^(?:TIMESTAMP|DATE)/;

/** Lines if the first column is a number or a time, else bars. */
export class Chart {
  constructor() {
    this.element = el("div", { class: "chart" });
    this.lines = null;
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** Shows rows of Nodes. */
  show(columns, rows) {
    const [first] = columns;
    const along = first && (NUMERIC.test(first.type) || TIME.test(first.type));
    const numeric = columns.map(({ name, type }, at) => ({ name, at, fits: NUMERIC.test(type) })).filter(({ fits }) => fits);
    const series = numeric.filter(({ at }) => at > 0 || columns.length === 1).slice(0, SERIES);
    this.lines = null;
    if (!series.length || !rows.length) {
      put(this.element, el("p", { class: "hint" }, rows.length
        ? "A plot takes a first column, and numbers in another one." : "There are no rows to plot."));
    } else if (along) {
      this.lines = lines(columns, rows, series);
      this.draw();
    } else {
      this.#bars(rows, series[0]);
    }
  }

  #bars(rows, { name, at }) {
    const note = rows.length > BARS ? `The first ${BARS} of ${count(rows.length)} rows.` : "";
    const bars = new Bars(visible(name), { note, empty: "", unit: "", place: "wide" });
    bars.show(rows.slice(0, BARS).map((row) => {
      const value = Number(row[at].isNull ? 0 : row[at].text);
      return { label: row[0].kind === "string" ? visible(row[0].plain()) : row[0].text, value, text: count(value) };
    }), "");
    put(this.element, bars.element);
  }

  /** Draws lines as wide as there is room. */
  draw() {
    const width = this.element.getBoundingClientRect().width;
    if (!this.lines || !width) return;
    const { x, series, from, to } = this.lines;
    const low = Math.min(0, ...series.flatMap(({ y }) => y.filter(Number.isFinite)));
    const top = ceiling(Math.max(0, ...series.flatMap(({ y }) => y.filter(Number.isFinite))));
    const [least, most] = [Math.min(...x), Math.max(...x)];
    const across = (value) => EDGE.left + ((value - least) / (most - least || 1)) * (width - EDGE.left - EDGE.right);
    const up = (value) => HEIGHT - EDGE.bottom - ((value - low) / (top - low)) * (HEIGHT - EDGE.top - EDGE.bottom);
    const grid = [low, (low + top) / 2, top].flatMap((value) => [
      svg("line", { class: "grid", x1: 0, x2: width, y1: up(value), y2: up(value) }),
      svg("text", { x: 0, y: up(value) - 4 }, count(value))]);
    const drawn = series.map(({ y }, n) => line(x.map(across), y.map((value) => Number.isFinite(value) ? up(value) : null), n));
    const named = series.map(({ name }) => name).join(", ");
    put(this.element,
      el("ul", { class: "legend" }, ...series.map(({ name }, n) =>
        el("li", {}, el("span", { class: `swatch s${n}` }), el("span", {}, visible(name))))),
      svg("svg", { class: "plot", height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `Lines of ${named}` },
        ...grid, ...drawn,
        svg("text", { x: 0, y: HEIGHT - 4 }, from), svg("text", { x: width - EDGE.right, y: HEIGHT - 4, "text-anchor": "end" }, to)));
  }
}

/** The rows as numbers, in the order of the first column. */
function lines(columns, rows, series) {
  const time = TIME.test(columns[0].type);
  const alone = columns.length === 1;
  const place = (row, at) => {
    if (alone) return at;
    return time ? Date.parse(`${row[0].plain()}`.replace(" ", "T")) : Number(row[0].text);
  };
  const sorted = rows.map((row, at) => ({ row, x: place(row, at) }))
    .filter(({ row, x }) => Number.isFinite(x) && !row[0].isNull).sort((one, other) => one.x - other.x);
  const named = ({ row, x }) => (alone ? count(x + 1) : time ? row[0].plain() : row[0].text);
  return {
    x: sorted.map(({ x }) => x),
    series: series.map(({ name, at }) => ({ name, y: sorted.map(({ row }) => row[at].isNull ? NaN : Number(row[at].text)) })),
    from: sorted.length ? named(sorted[0]) : "", to: sorted.length > 1 ? named(sorted.at(-1)) : "",
  };
}

function line(x, y, number) {
  let path = "";
  y.forEach((height, at) => {
    if (height === null) return;
    path += `${path && y[at - 1] !== null ? "L" : "M"}${x[at].toFixed(1)} ${height.toFixed(1)}`;
  });
  const dots = y.length > 60 ? [] : y.map((height, at) => height === null ? null
    : svg("circle", { class: `mark s${number}`, cx: x[at], cy: height, r: 3 })).filter(Boolean);
  return svg("g", {}, svg("path", { class: `trace s${number}`, d: path || "M0 0" }), ...dots);
}
