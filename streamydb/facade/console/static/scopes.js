// Fields for prefixes begin with one that this token may read.

import { byId, el, put } from "./dom.js";
import { facts, home } from "./facts.js";

const FIELDS = ["prefix", "follow-prefix"];

let filled = "";

/** Offers the prefixes of the token, and fills fields that it could not leave empty. */
export function showScopes() {
  const scopes = facts.read.filter((scope) => scope !== "" && !scope.startsWith("$"));
  const offered = byId("scopes");
  if (offered.dataset.of !== scopes.join("\n")) {
    offered.dataset.of = scopes.join("\n");
    put(offered, ...scopes.map((scope) => el("option", { value: scope })));
  }
  const wanted = home(facts.read);
  if (wanted === filled) return;
  for (const field of FIELDS.map(byId)) {
    if (field.value === filled) field.value = wanted;
    field.placeholder = wanted ? "a prefix that this token may read" : "all keys";
  }
  filled = wanted;
}
