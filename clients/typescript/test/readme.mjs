// Makes tests of the examples in README.md: each is compiled, and run against a fresh database.

import { readFileSync, writeFileSync } from "node:fs";

const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
const blocks = [...readme.matchAll(/^```ts\n(.*?)^```/gms)].map(([, block]) => block);
const names = new Set();
const tests = blocks.map((block, number) => {
  const body = block.replace(/^import \{([^}]*)\} from "streamydb";\n/gm, (_, list) => {
    for (const name of list.split(",")) names.add(name.trim());
    return "";
  });
  const own = body.replaceAll('"http://127.0.0.1:8080"', "facade.url");
  return `test("example ${number + 1}", async () => {
    const facade = await serve();
    try {
      ${own}
      client.close();
    } finally {
      await facade.end();
    }
  });`;
});
const head = `import assert from "node:assert/strict";
import { test } from "node:test";
import { ${[...names].join(", ")} } from "../src/index.js";
import { serve } from "./facade.js";
`;
writeFileSync(new URL("readme.test.ts", import.meta.url), [head, ...tests].join("\n"));
