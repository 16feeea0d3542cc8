/** The checks that scans become: those of the Python client (tests/clients). */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { UnsafeScanError } from "../src/index.js";
import { comesTo, rangeChecks } from "../src/ranges.js";
import { RangeScan } from "../src/reads.js";

interface Case {
  bounds: [string, string | null, string | null];
  count: number;
  last: string | null;
  whole: boolean | null;
  ended: boolean;
  checks: unknown;
  comes: string[];
}

const FILE = new URL("../../../../tests/clients/scans.json", import.meta.url);
const { keys, cases } = JSON.parse(readFileSync(FILE, "utf8")) as { keys: string[]; cases: Case[] };

test("scans become the same checks", () => {
  assert.ok(cases.length > 100);
  for (const one of cases) {
    const [prefix, start, end] = one.bounds;
    const scan = new RangeScan({ prefix, start: start ?? undefined, end: end ?? undefined }, {}, undefined);
    const { count, last } = one;
    Object.assign(scan, { count, whole: one.whole ?? undefined, ended: one.ended });
    if (last !== null) scan.last = { key: last, value: 0, version: 4, tsMs: 0 };
    let checks: unknown = "unsafe";
    try {
      checks = rangeChecks(scan, 7);
    } catch (error) {
      if (!(error instanceof UnsafeScanError)) throw error;
    }
    assert.deepEqual(checks, one.checks, JSON.stringify(one));
    assert.deepEqual(keys.filter((key) => comesTo(scan, [key])), one.comes, JSON.stringify(one));
  }
});
