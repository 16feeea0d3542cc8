// Keeps a file equal to a database: rows and offsets are written together, and take effect at once.
//
//     npm install kafkajs
//     node to_file.mjs kafka:9092 bank bank.json
import { readFile, rename, writeFile } from "node:fs/promises";
import { Kafka } from "kafkajs";

const [bootstrap, database, file] = process.argv.slice(2);
const topic = `${database}.connect`;
const state = JSON.parse(await readFile(file, "utf8").catch(() => '{"rows":{},"next":{}}'));
const kafka = new Kafka({ brokers: bootstrap.split(",") });
const consumer = kafka.consumer({ groupId: `${database}-to-file` }); // reads committed records only
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
await consumer.run({
  autoCommit: false,
  eachBatch: async ({ batch, heartbeat }) => {
    for (const { offset, key, value } of batch.messages) {
      const name = JSON.parse(key).payload.key;
      const after = value && JSON.parse(value).payload.after;
      if (after) state.rows[name] = after.value; // JSON text, so that large integers stay whole
      else delete state.rows[name];
      state.next[batch.partition] = String(BigInt(offset) + 1n);
    }
    await writeFile(`${file}.new`, JSON.stringify(state));
    await rename(`${file}.new`, file);
    await heartbeat();
  },
});
for (const [partition, offset] of Object.entries(state.next)) {
  consumer.seek({ topic, partition: Number(partition), offset });
}
