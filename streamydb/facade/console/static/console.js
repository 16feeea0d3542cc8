// The page as a whole: views, theme, token, and the question for news every second.

import { token } from "./api.js";
import { startChanges, stopChanges } from "./changes.js";
import { isListed, list, open, setSeqs, setStrong, startData } from "./data.js";
import { byId, put, say } from "./dom.js";
import { forgetLive, refreshLive, showLost, showState, startLive, trouble } from "./live.js";
import { editWrite, lookUp, startTransactions } from "./transactions.js";

const VIEWS = ["live", "data", "transactions", "changes"];
const THEMES = ["auto", "light", "dark"];
const THEME = "streamydb.theme";
const POLL_MS = 1_000;
const POLL_FAILED_MS = 3_000;

let writes = false;
let timer;
let session = 0;

function show(view) {
  for (const name of VIEWS) byId(`view-${name}`).hidden = name !== view;
  for (const link of document.querySelectorAll("nav.views a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view === "data" && !isListed()) list();
}

const current = () => (VIEWS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "live");

function go(view) {
  location.hash = view;
  show(view);
}

function chooseKey(key) {
  go("data");
  open(key);
}

function startTheme() {
  const button = byId("theme");
  const use = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  const kept = localStorage.getItem(THEME);
  use(THEMES.includes(kept) ? kept : "auto");
  button.addEventListener("click", () => {
    const now = THEMES.indexOf(document.documentElement.dataset.theme);
    const next = THEMES[(now + 1) % THEMES.length];
    localStorage.setItem(THEME, next);
    use(next);
  });
}

function startToken() {
  byId("token-toggle").addEventListener("click", () => showToken(byId("token-panel").hidden));
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = byId("token").value.trim();
    if (/^[\x21-\x7e]+$/.test(given)) token.set(given);
    else token.forget();
    byId("token").value = "";
    newSession();
    showToken(false);
  });
  byId("token-forget").addEventListener("click", () => {
    token.forget();
    newSession();
  });
}

function showToken(shown) {
  byId("token-panel").hidden = !shown;
  byId("token-toggle").setAttribute("aria-expanded", String(shown));
  if (shown) byId("token").focus();
}

/** Forgets everything that another token may not see. */
function newSession() {
  session += 1;
  stopChanges();
  forgetLive();
  setWrites(false);
  put(byId("keys"));
  put(byId("detail"));
  put(byId("verdict"));
  put(byId("events"));
  say(byId("browse-status"), "");
  say(byId("token-who"), "");
  poll();
  if (current() === "data") list();
}

function setWrites(may) {
  writes = may;
  for (const element of document.querySelectorAll("[data-write]")) element.hidden = !may;
}

function showClient({ name, scopes }) {
  const named = (prefixes) => (prefixes.length ? prefixes.map((each) => each || "all keys").join(", ") : "nothing");
  say(byId("token-who"), `Here as ${name}: reads ${named(scopes.read)}; writes ${named(scopes.write)}.`);
  if (writes !== scopes.write.length > 0) setWrites(!writes);
  byId("read-only").hidden = writes;
}

async function poll() {
  clearTimeout(timer);
  const mine = session;
  let pause = POLL_MS;
  if (!document.hidden) {
    try {
      const stats = await refreshLive(chooseKey);
      if (mine !== session) return;
      showState(stats);
      showClient(stats.client);
      setSeqs(stats.oldest, stats.seq);
      setStrong(stats.health.strong);
      say(byId("notice"), trouble(stats.health));
      byId("notice").hidden = stats.health.status === "ready";
    } catch (problem) {
      if (mine !== session) return;
      pause = lost(problem);
    }
  }
  clearTimeout(timer);
  if (pause !== null) timer = setTimeout(poll, pause);
}

/** Tells that there are no figures; returns when to ask again, null: when there is a token. */
function lost(problem) {
  const locked = problem.status === 401;
  showLost(locked ? "token needed" : "no answer");
  setStrong(true);
  say(byId("notice"), locked ? "This facade answers with a token only." : problem.message);
  byId("notice").hidden = false;
  if (locked && byId("token-panel").hidden) showToken(true);
  return locked ? null : POLL_FAILED_MS;
}

startTheme();
startToken();
startLive();
startData({
  mayWrite: () => writes,
  write: (key, version, text) => {
    go("transactions");
    editWrite(key, version, text);
  },
  lookUp: (id) => {
    go("transactions");
    lookUp(id);
  },
});
startTransactions();
startChanges(chooseKey);
addEventListener("hashchange", () => {
  if (VIEWS.includes(location.hash.slice(1))) show(current());
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) poll();
});
show(current());
poll();
