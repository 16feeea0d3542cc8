/**
 * Ranges of keys, and what a function under `run` has scanned as checks.
 *
 * A check of a range says how many keys there were, and that none is newer than the snapshot. So it
 * fails if somebody has added, changed or removed a key there. Of a scan that was not read to its
 * end, only the part that was seen is checked.
 */

import { UnsafeScanError } from "./errors.js";
import type { RangeScan } from "./reads.js";
import type { Check, Entry, RangeCheck } from "./types.js";

const ENDLESS =
  "A function under run() that writes scans a range with an end: give the scan a prefix, or an end. " +
  "Keys that begin with `$` cannot be in it, because the database itself writes those.";

/** Keys that begin with `$` are before it, and not before `$`. */
const BEHIND_SYSTEM = "%";
const HIGHEST = 0x10ffff;

/** The checks that what was seen of a scan, at a snapshot, is so still. */
export function rangeChecks(scan: RangeScan, seq: number): (Check | RangeCheck)[] {
  if (scan.whole === undefined) return [];
  const { prefix } = scan.bounds;
  const [begin, end] = boundsOf(scan);
  const alone = prefix !== "" && begin === prefix && end === firstBehind(prefix);
  const system = isBefore(begin, BEHIND_SYSTEM) && isBefore("$", end ?? BEHIND_SYSTEM);
  if ((end === undefined && !alone) || system) throw new UnsafeScanError(ENDLESS);
  const start = begin || "\0";
  if (scan.whole) {
    const range = end === undefined || alone ? { prefix } : { start, end };
    return [{ range, count: scan.count, version_le: seq }];
  }
  if (scan.last === undefined) return [];
  const { key, version } = scan.last;
  return [
    { range: { start, end: key }, count: scan.count - 1, version_le: seq },
    { key, version },
  ];
}

/** A scan has yet to come to one of these keys. */
export function comesTo(scan: RangeScan, keys: Iterable<string>): boolean {
  if (scan.ended) return false;
  const [begin, end] = boundsOf(scan);
  const last = scan.last?.key ?? "";
  return [...keys].some(
    (key) => !isBefore(key, begin) && isBefore(last, key) && (end === undefined || isBefore(key, end)),
  );
}

/**
 * A page that was read of a scan, behind the entry `last`, with the scan's own writes.
 *
 * What was written has the version that was read, 0 if there was none.
 */
export function withWrites(scan: RangeScan, page: readonly Entry[], last: Entry | undefined): Entry[] {
  const found = new Map(page.map((entry) => [entry.key, entry]));
  const end = page.at(-1)?.key;
  for (const [key, value] of scan.own) {
    const inside = scan.whole || (end !== undefined && !isBefore(end, key));
    if (!inside || (last !== undefined && !isBefore(last.key, key))) continue;
    const version = found.get(key)?.version ?? 0;
    if (value === undefined) found.delete(key);
    else found.set(key, { key, value: structuredClone(value), version, tsMs: 0 });
  }
  return [...found.values()].sort((one, other) => byCodePoints(one.key, other.key));
}

/** The first text in a scan's range, and the first behind it; undefined: there is none. */
function boundsOf(scan: RangeScan): [string, string | undefined] {
  const { prefix, start = "", end } = scan.bounds;
  const ends = [firstBehind(prefix), end].filter((each) => each !== undefined).sort(byCodePoints);
  return [isBefore(prefix, start) ? start : prefix, ends[0]];
}

/** The first text behind all that begin with a prefix; undefined: there is none. */
function firstBehind(prefix: string): string | undefined {
  const points = Array.from(prefix, (character) => character.codePointAt(0)!);
  while (points.at(-1) === HIGHEST) points.pop();
  const last = points.pop();
  if (last === undefined) return undefined;
  const following = last + 1;
  return String.fromCodePoint(...points, following >= 0xd800 && following < 0xe000 ? 0xe000 : following);
}

/** Compare texts as the bytes of their UTF-8 compare. */
export function byCodePoints(one: string, other: string): number {
  const [left, right] = [Array.from(one), Array.from(other)];
  const at = left.findIndex((character, place) => character !== right[place]);
  if (at < 0) return left.length - right.length;
  return left[at]!.codePointAt(0)! - (right[at]?.codePointAt(0) ?? -1);
}

function isBefore(one: string, other: string): boolean {
  return byCodePoints(one, other) < 0;
}
