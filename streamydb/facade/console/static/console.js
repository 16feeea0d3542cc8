// The page as a whole: views, theme, token, and the question for news every second.

import { token } from "./api.js";
import { forgetChanges, startChanges } from "./changes.js";
import { forgetData, isListed, openNow, refresh, showSeqs, startData } from "./data.js";
import { disconnect } from "./database.js";
import { byId, say } from "./dom.js";
import { facts, forget, giveUp, learn } from "./facts.js";
import { forgetLive, refreshLive, showLost, showState, startLive, trouble } from "./live.js";
import { forgetPipelines, hidePipelines, showPipelines } from "./pipelines.js";
import { forgetProcedures, showProcedures, startProcedures } from "./procedures.js";
import { showReference } from "./reference.js";
import { showScopes } from "./scopes.js";
import { forgetSql, startSql } from "./sql.js";
import { forgetStreams, showStreams, startStreams } from "./streams.js";
import { edit, editWrite, forgetTransactions, lookUp, showExamples, startTransactions } from "./transactions.js";

// What each view does when it is shown.
const VIEWS = {
  live: () => {},
  data: () => isListed() || refresh(false),
  sql: () => {},
  transactions: () => {},
  changes: () => {},
  streams: showStreams,
  procedures: showProcedures,
  pipelines: showPipelines,
  api: showReference,
};
const THEMES = ["auto", "light", "dark"];
const THEME = "streamydb.theme";
const POLL_MS = 1_000;
const POLL_FAILED_MS = 3_000;

let timer;
let session = 0;
let shown = "";

function show(view) {
  shown = view;
  for (const name of Object.keys(VIEWS)) byId(`view-${name}`).hidden = name !== view;
  for (const link of document.querySelectorAll("nav.views a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  hidePipelines();
  VIEWS[view]();
}

/** Shows the view that the address names; other names are places in a view. */
function follow() {
  const named = location.hash.slice(1);
  if (Object.hasOwn(VIEWS, named) && named !== shown) show(named);
}

function go(view) {
  location.hash = view;
  follow();
}

function chooseKey(key) {
  openNow(key);
  go("data");
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
  disconnect();
  forget();
  for (const each of [forgetLive, forgetData, forgetSql, forgetTransactions, forgetChanges, forgetStreams,
    forgetProcedures, forgetPipelines]) each();
  setWrites();
  say(byId("token-who"), "");
  poll();
  show(shown);
}

function setWrites() {
  for (const element of document.querySelectorAll("[data-write]")) element.hidden = !facts.writes;
}

function showClient(name) {
  const named = (prefixes) => (prefixes.length ? prefixes.map((each) => each || "all keys").join(", ") : "nothing");
  say(byId("token-who"), `Here as ${name}: reads ${named(facts.read)}; writes ${named(facts.write)}.`);
  byId("read-only").hidden = facts.writes;
  if (byId("run").hidden === facts.writes) setWrites();
  showExamples();
  showScopes();
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
      learn(stats);
      showClient(stats.client.name);
      showSeqs();
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
  giveUp();
  say(byId("notice"), locked ? "This facade answers with a token only." : problem.message);
  byId("notice").hidden = false;
  if (locked && byId("token-panel").hidden) showToken(true);
  return locked ? null : POLL_FAILED_MS;
}

startTheme();
startToken();
startLive();
startData({
  write: (key, entry, text) => {
    go("transactions");
    editWrite(key, entry, text);
  },
  lookUp: (id) => {
    go("transactions");
    lookUp(id);
  },
});
startTransactions();
startChanges(chooseKey);
startSql();
startStreams();
startProcedures((text) => {
  go("transactions");
  edit(text);
  byId("editor").focus();
});
addEventListener("hashchange", follow);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) poll();
});
follow();
if (!shown) show("live");
poll();
