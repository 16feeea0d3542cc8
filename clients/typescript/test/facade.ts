/** A facade over a database in memory, in a process of its own. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../../..", import.meta.url));

export interface Facade {
  readonly url: string;
  /** `cut` breaks all connections, `stop` lets nothing be executed, `go` executes again. */
  command(name: "cut" | "stop" | "go"): Promise<void>;
  end(): Promise<void>;
}

export async function serve(): Promise<Facade> {
  const python = process.env["STREAMYDB_PYTHON"] ?? "python3";
  const child = spawn(python, ["-m", "tests.support.memory_facade"], {
    cwd: ROOT,
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const url = String((await lines.next()).value);
  return {
    url,
    async command(name) {
      child.stdin.write(`${name}\n`);
      await lines.next();
    },
    async end() {
      child.stdin.end();
      await once(child, "exit");
    },
  };
}
