// Statements of SQL in a text: semicolons part them, but not in quotes and comments.

const PART = /'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$[\s\S]*?\$\1\$|--[^\n]*|\/\*[\s\S]*?\*\/|;|[\s\S]/g;

/** Returns the statements of a text; comments alone are none. */
export function statements(text) {
  const found = [""];
  const said = [false];
  for (const [part] of text.matchAll(PART)) {
    if (part === ";") {
      found.push("");
      said.push(false);
      continue;
    }
    found[found.length - 1] += part;
    if (part.trim() && !part.startsWith("--") && !part.startsWith("/*")) said[said.length - 1] = true;
  }
  return found.filter((_, number) => said[number]).map((each) => each.trim());
}
