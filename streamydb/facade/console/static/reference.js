// The view of the API: the OpenAPI document of this facade, for reading.

import { call } from "./api.js";
import { byId, el, put, say } from "./dom.js";
import { prose } from "./prose.js";
import { table, wideTable } from "./tables.js";

const DOCUMENT = "schema/openapi.json";
const METHODS = ["get", "put", "post", "delete"];
const DEPTH = 4;

let shown = false;

/** Fetches the document once. */
export async function showReference() {
  if (shown) return;
  try {
    const [document, problems] = await Promise.all([DOCUMENT, "problems"].map(async (target) =>
      JSON.parse((await call("GET", target)).text)));
    put(byId("endpoints"), ...endpoints(document));
    put(byId("problem-types"), problemTypes(problems));
    say(byId("api-version"), `${document.info.title} ${document.info.version}`);
    shown = true;
  } catch (problem) {
    put(byId("endpoints"), el("p", { class: "notice" }, problem.message));
  }
}

function endpoints(document) {
  return Object.entries(document.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => endpoint(document, method, path, item[method])));
}

function endpoint(document, method, path, operation) {
  const { summary, description = "", parameters = [], requestBody, responses } = operation;
  const [first, ...rest] = description.split("\n\n");
  return el("details", { class: "endpoint" },
    el("summary", {}, el("span", { class: "method", "data-method": method }, method.toUpperCase()), " ",
      el("code", {}, path), " ", el("span", { class: "hint" }, ...prose(first || summary || ""))),
    ...rest.map((text) => el("p", {}, ...prose(text))),
    parameters.length ? parametersTable(document, parameters) : null,
    requestBody ? body(document, "It takes", requestBody) : null,
    answers(document, responses));
}

function parametersTable(document, parameters) {
  const rows = parameters.map((each) => resolved(document, each)).map(({ name, in: place, required, schema, description = "" }) => [
    el("code", {}, name), `${place}${required ? ", required" : ""}`, typeOf(document, schema), el("span", {}, ...prose(description))]);
  return wideTable("Parameters", ["name", "in", "type", "what it says"], rows, "parameters");
}

function body(document, title, { content = {} }) {
  const [[type, { schema }] = ["", {}]] = Object.entries(content);
  return schema ? el("div", {}, el("h4", {}, `${title}: ${type}`), shape(document, schema)) : null;
}

function answers(document, responses) {
  const good = Object.entries(responses).filter(([status]) => status < "300");
  const bad = Object.entries(responses).filter(([status]) => status >= "300");
  return el("div", {},
    ...good.flatMap(([status, answer]) => [
      el("h4", {}, `${status}: `, ...prose(answer.description ?? "")), body(document, "It gives", answer)]).filter(Boolean),
    bad.length ? table("What may go wrong", ["status", "when"], bad.map(([status, { description = "" }]) => [
      status, el("ul", {}, ...description.split("\n").map((text) => el("li", {}, ...prose(text.replace(/^- /, "")))))]), "faults") : null);
}

/** A schema as the text that one would send. */
function shape(document, schema) {
  return el("pre", { class: "json", tabindex: "0" }, outline(document, schema, "", DEPTH));
}

function outline(document, given, indent, depth) {
  const schema = resolved(document, given);
  const inner = indent + "  ";
  const properties = Object.entries(schema.properties ?? {});
  if (properties.length && depth) {
    const optional = (name) => (schema.required?.includes(name) ? "" : "?");
    const lines = properties.map(([name, part]) => `${inner}${JSON.stringify(name)}${optional(name)}: ${outline(document, part, inner, depth - 1)}`);
    return `{\n${lines.join(",\n")}\n${indent}}`;
  }
  if (schema.items && depth) return `[${outline(document, schema.items, indent, depth - 1)}, …]`;
  return typeOf(document, schema);
}

function typeOf(document, given) {
  const schema = resolved(document, given ?? {});
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  const several = schema.oneOf ?? schema.anyOf ?? schema.allOf;
  if (several) return [...new Set(several.map((each) => typeOf(document, each)))].join(" | ");
  return [schema.type ?? "any JSON"].flat().join(" | ");
}

function resolved(document, schema) {
  if (!schema.$ref) return schema;
  return schema.$ref.split("/").slice(1).reduce((part, name) => part[name.replaceAll("~1", "/")], document);
}

function problemTypes(problems) {
  const rows = problems.map(({ slug, status, title, when }) => [
    el("code", {}, slug), String(status), el("span", {}, el("b", {}, title), ": ", ...prose(when))]);
  return wideTable("Problem types", ["type", "status", "when"], rows, "problems");
}
