// JSON without loss: integers beyond 2^53, the order of fields and every digit stay as they are.

const TOKEN = /[ \t\r\n]*(?:([{}[\],:])|("(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?)|(true|false|null))/y;
const BLANK = /[ \t\r\n]*/y;

/** A part of a document: its kind, its source text, and what it is made of. */
export class Node {
  constructor(kind, text, parts) {
    this.kind = kind; // object, array, string, number, word
    this.text = text;
    this.parts = parts; // of objects: [name, Node], of arrays: Node
  }

  /** The member of an object; the last one counts, as in the database. */
  get(name) {
    if (this.kind !== "object") return undefined;
    return this.parts.findLast(([given]) => given === name)?.[1];
  }

  /** What JSON.parse makes of it; large integers lose digits. */
  plain() {
    return JSON.parse(this.text);
  }

  get isNull() {
    return this.text === "null";
  }
}

export class JsonError extends Error {}

/** Parses a document; a JsonError tells line and column. */
export function parse(text) {
  let place = 0;

  function fail(what) {
    BLANK.lastIndex = place;
    BLANK.exec(text);
    const lines = text.slice(0, BLANK.lastIndex).split("\n");
    throw new JsonError(`Line ${lines.length}, column ${lines.at(-1).length + 1}: ${what}.`);
  }

  function token(what) {
    TOKEN.lastIndex = place;
    const match = TOKEN.exec(text);
    if (match === null) fail(`${what} expected`);
    const before = place;
    place = TOKEN.lastIndex;
    return { match, before };
  }

  function back(taken, what) {
    place = taken.before;
    fail(`${what} expected`);
  }

  function value() {
    const taken = token("a value");
    const [, sign, string, number, word] = taken.match;
    if (string !== undefined) return new Node("string", string);
    if (number !== undefined) return new Node("number", number);
    if (word !== undefined) return new Node("word", word);
    const start = place - 1;
    if (sign === "{") return new Node("object", ...list("}", member, start));
    if (sign === "[") return new Node("array", ...list("]", value, start));
    return back(taken, "a value");
  }

  function member() {
    const name = token("a name in double quotes");
    if (name.match[2] === undefined) back(name, "a name in double quotes");
    const colon = token("a colon");
    if (colon.match[1] !== ":") back(colon, "a colon");
    return [JSON.parse(name.match[2]), value()];
  }

  function list(end, part, start) {
    const parts = [];
    const first = token(`an element or ${end}`);
    if (first.match[1] === end) return [text.slice(start, place), parts];
    place = first.before;
    for (;;) {
      parts.push(part());
      const sign = token(`a comma or ${end}`);
      if (sign.match[1] === end) return [text.slice(start, place), parts];
      if (sign.match[1] !== ",") back(sign, `a comma or ${end}`);
    }
  }

  const whole = value();
  BLANK.lastIndex = place;
  BLANK.exec(text);
  if (BLANK.lastIndex !== text.length) fail("the end expected");
  return whole;
}

/** A part in several lines; short lists stay in one. */
export function pretty(node, indent = "") {
  if (node.kind !== "object" && node.kind !== "array") return node.text;
  const inner = indent + "  ";
  const parts = node.kind === "object"
    ? node.parts.map(([name, part]) => `${JSON.stringify(name)}: ${pretty(part, inner)}`)
    : node.parts.map((part) => pretty(part, inner));
  const [open, close] = node.kind === "object" ? "{}" : "[]";
  const line = open + parts.join(", ") + close;
  if (indent.length + line.length <= 72 && !line.includes("\n")) return line;
  return `${open}\n${parts.map((part) => inner + part).join(",\n")}\n${indent}${close}`;
}
