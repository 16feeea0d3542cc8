// Requests that the client has no method for. The token lives in this tab's session storage and nowhere else.

const TOKEN = "streamydb.token";

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  set: (text) => sessionStorage.setItem(TOKEN, text),
  forget: () => sessionStorage.removeItem(TOKEN),
};

/** A request that was not served; `slug` is the problem's type (see /problems). */
export class Problem extends Error {
  constructor(slug, status, title, detail, members = {}) {
    super(detail ? `${title}: ${detail}` : title);
    this.slug = slug;
    this.status = status;
    this.members = members;
  }
}

/** A path with a name as its last part and a query; empty parameters are left out. */
export function path(base, name, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const asked = new URLSearchParams(given).toString();
  const last = name === null ? "" : "/" + encodeURIComponent(name);
  return `v1/${base}${last}${asked ? "?" + asked : ""}`;
}

/** Sends a request; returns status, headers and text, or throws a Problem. */
export async function call(method, target, { body, headers = {}, signal } = {}) {
  const asked = token.get();
  const answer = await send(method, target, { body, headers, signal });
  const text = await answer.text();
  if (token.get() !== asked) throw new Problem("stale", 0, "The token was changed meanwhile");
  return { status: answer.status, headers: answer.headers, text };
}

async function send(method, target, { body, headers, signal }) {
  const sent = { ...headers };
  if (token.get()) sent.Authorization = `Bearer ${token.get()}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(target, { method, body, headers: sent, signal, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("unreachable", 0, "The facade does not answer");
  }
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

async function problemOf(answer) {
  let members = {};
  try {
    members = JSON.parse(await answer.text());
  } catch {
    // not one of ours: a proxy in between
  }
  const slug = String(members.type ?? "").split("/").at(-1) || `http-${answer.status}`;
  const title = String(members.title ?? `HTTP ${answer.status}`);
  members.location = answer.headers.get("Location");
  return new Problem(slug, answer.status, title, String(members.detail ?? ""), members);
}
