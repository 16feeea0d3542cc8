// Keeps a file equal to a database: rows and positions are written together, and take effect at once.
//
//     npm install kafkajs
//     node to_file.mjs kafka:9092 bank bank.json
//
// A position is the last record that was applied. It is read again at the start: if it is another one
// there, the topic was made anew, or the record is gone, and the file begins anew, too.
import { readFile, rename, writeFile } from "node:fs/promises";
import { Kafka } from "kafkajs";

const [bootstrap, database, file] = process.argv.slice(2);
const topic = `${database}.connect`;
const state = JSON.parse(await readFile(file, "utf8").catch(() => "{}"));
const rows = new Map(Object.entries(state.last ? state.rows : {})); // in an object `__proto__` is no key
const last = new Map(Object.entries(state.last ?? {}));
const kafka = new Kafka({ brokers: bootstrap.split(",") });
const admin = kafka.admin();
await admin.connect();
const ends = await admin.fetchTopicOffsets(topic);
await admin.disconnect();
const unseen = new Set(last.keys()); // partitions whose last record has not been read again
if (ends.some(({ partition, high }) => BigInt(last.get(`${partition}`)?.offset ?? -1) >= BigInt(high))) beginAnew();

const consumer = kafka.consumer({ groupId: `${database}-to-file` }); // reads committed records only
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
await consumer.run({
  autoCommit: false,
  eachBatch: async ({ batch, heartbeat }) => {
    if (!goesOn(`${batch.partition}`, batch.messages[0])) {
      beginAnew();
      for (const { partition } of ends) consumer.seek({ topic, partition, offset: "0" });
      return;
    }
    for (const { key, value } of batch.messages) {
      const name = JSON.parse(key).payload.key;
      const after = value && JSON.parse(value).payload.after;
      if (after) rows.set(name, after.value); // JSON text, so that large integers stay whole
      else rows.delete(name);
    }
    const end = batch.messages.at(-1);
    last.set(`${batch.partition}`, { offset: end.offset, mark: markOf(end) });
    await writeFile(`${file}.new`, JSON.stringify({ rows: Object.fromEntries(rows), last: Object.fromEntries(last) }));
    await rename(`${file}.new`, file);
    await heartbeat();
  },
});
for (const { partition } of ends) {
  consumer.seek({ topic, partition, offset: last.get(`${partition}`)?.offset ?? "0" });
}

/** What no record of another topic has at the same offset. */
function markOf({ timestamp, headers }) {
  return `${timestamp} ${headers.streamydb}`;
}

/** Whether a record, the first of a batch, is the one that must come. */
function goesOn(partition, first) {
  const { offset, mark } = last.get(partition) ?? { offset: "-1" };
  if (unseen.delete(partition)) return offset === first.offset && mark === markOf(first);
  return BigInt(first.offset) > BigInt(offset);
}

/** Forgets all rows and positions. */
function beginAnew() {
  rows.clear();
  last.clear();
  unseen.clear();
}
