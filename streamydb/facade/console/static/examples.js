// Transactions to begin with. Each of them commits in an empty database, and again later.

/** The examples by name, on keys with a prefix that the token may write. */
export function examples(prefix) {
  const key = (name) => prefix + name;
  return {
    "Put": { updates: [{ op: "put", key: key("greeting"), value: { text: "hello" } }] },
    "Deposit": { updates: [{ op: "add", key: key("acct/1"), by: 100, min: 0 }], reads: [key("acct/1")] },
    "Transfer": {
      updates: [
        { op: "add", key: key("acct/1"), by: -30 },
        { op: "add", key: key("acct/2"), by: 30 },
      ],
      reads: [key("acct/1"), key("acct/2")],
    },
    "Check and set": {
      checks: [{ key: key("door"), ne: "locked" }],
      updates: [{ op: "put", key: key("door"), value: "open" }],
    },
    "For a minute": { updates: [{ op: "put", key: key("session"), value: "ann", ttl_ms: 60_000 }] },
    "Next id": {
      updates: [
        { op: "next_id", key: key("orders") },
        { op: "append", key: key("log"), value: "new order" },
      ],
    },
  };
}
