// JSON for the client without loss: the values of a database stay Nodes, with every digit.

import { Node, parse } from "./json.js";

const VALUES = new Set(["value", "before", "after", "reads", "returned"]);

/** What the client is given to read and write JSON with. */
export const exact = {
  parse: (text) => plain(parse(text)),
  stringify: (value) => write(value),
};

/** Turns a Node into what the client works with; members that hold values stay as they are. */
function plain(node) {
  if (node.isNull) return null;
  if (node.kind === "object") return Object.fromEntries(members(node, member));
  if (node.kind === "array") return node.parts.map(plain);
  const value = node.plain();
  return node.kind === "number" && String(value) !== node.text ? node : value;
}

const members = (node, make) => node.parts.map(([name, part]) => [name, make(name, part)]);

function member(name, node) {
  if (VALUES.has(name)) return node.isNull ? null : node;
  if (name === "entries" && node.kind === "object") return Object.fromEntries(members(node, (_, part) => plain(part)));
  return plain(node);
}

function write(value) {
  if (value instanceof Node) return value.text;
  if (Array.isArray(value)) return `[${value.map(write).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const parts = Object.entries(value).filter(([, part]) => part !== undefined);
  return `{${parts.map(([name, part]) => `${JSON.stringify(name)}:${write(part)}`).join(",")}}`;
}
