// The client of the database (clients/typescript, compiled), with the token of this tab.

import { token } from "./api.js";
import { connect, ConnectionLostError } from "./client/index.js";
import { exact } from "./exact.js";

/** How long a read is tried: somebody looks at an empty place meanwhile. */
export const READ_S = 10;
const PAGE = 50;

let connected = null;

/** The client; another one after `disconnect`. */
export function database() {
  connected ??= connect(new URL(".", document.baseURI).href, {
    ...(token.get() ? { token: token.get() } : {}),
    json: exact,
    pageEntries: PAGE,
    fetch: (target, init) => fetch(target, { ...init, credentials: "omit" }),
  });
  return connected;
}

/** Ends all that is under way: the token is another one now. */
export function disconnect() {
  connected?.close();
  connected = null;
}

/** Says what failed, for people. */
export const words = (error) =>
  error instanceof ConnectionLostError ? "The facade does not answer." : error.detail || error.message;
