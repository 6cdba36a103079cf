// The page asks the worker once a second how things stand and shows it. Nothing is loaded from elsewhere.
import { showLimits, forgetPlots } from "./limits.js";
import { showInFlight } from "./inflight.js";
import { showPools } from "./pools.js";
import { addHistory, addNow } from "./history.js";
import { showHour } from "./hour.js";
import { allowChanges } from "./jobs.js";
import { showWorkers } from "./workers.js";
import { showNoNews, showWrong } from "./wrong.js";
import { get } from "./request.js";
import { number, text } from "./dom.js";
import "./explain.js";

const interval = 1000;
const slowEvery = 5; // at every fifth refresh, what changes slowly is asked for, too
const find = document.getElementById("limit-find");
let timer = 0;
let refreshes = 0; // since the page was opened or shown again, or the last failure
let complete = false; // the history has no gap
let asked = false; // whether it has been asked for what changes slowly
let workers = [];
let others = { queues: [], unread: 0 }; // that this worker does not serve

async function refresh() {
  clearTimeout(timer);
  try {
    const now = await get("api/overview?" + new URLSearchParams({ find: find.value.trim() }));
    if (!complete) {
      addHistory(await get("api/history"));
      complete = true;
    }
    addNow(now);
    if (refreshes++ % slowEvery === 0) {
      if (asked) show(now);
      await refreshSlow(now);
    }
    show(now);
    live("ok", "live, " + new Date(now.at).toLocaleTimeString());
  } catch (err) {
    complete = false;
    refreshes = 0;
    live("lost", "no news: " + err.message);
    showNoNews();
  }
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(refresh, interval);
}

// A Redis user may lack the rights for these alone: the rest of the page goes on without them.
async function refreshSlow(now) {
  const [fleet, past, found] = await Promise.allSettled([get("api/workers"), get("api/past"), get("api/others")]);
  asked = true;
  others = found.value ?? { ...others, failed: found.reason };
  workers = fleet.value?.workers ?? [];
  showWorkers(workers, now.at, fleet.reason);
  if (past.value) showHour(past.value);
}

// A queue of others is asked for again at once, too.
function changed() {
  refreshes = 0;
  refresh();
}

// The state is announced to screen readers when it changes, not each second.
function live(state, words) {
  const el = document.getElementById("live");
  el.setAttribute("aria-live", el.dataset.state === state ? "off" : "polite");
  el.dataset.state = state;
  text(el, words);
}

function show(now) {
  text(document.getElementById("worker"), now.worker);
  document.getElementById("readonly").hidden = now.writable;
  const unread = document.getElementById("unread");
  unread.hidden = now.unread === 0;
  text(unread, `${number(now.unread)} more limiters have parked jobs than are counted here; their jobs show as retry.`);
  const queues = [...now.pools.flatMap((p) => p.queues), ...others.queues];
  const sum = (field) => queues.reduce((n, x) => n + x[field], 0);
  text(document.getElementById("paused"), number(now.paused));
  text(document.getElementById("parked"), number(now.parked));
  text(document.getElementById("waiting"), number(now.waiting));
  text(document.getElementById("pending"), number(sum("pending")));
  text(document.getElementById("archived"), number(sum("archived")));
  showWrong(now, workers, others);
  showLimits(now, refresh);
  showInFlight(now.in_flight);
  showPools(now, others, changed);
  allowChanges(now.writable, refresh);
}

find.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(refresh, 200); });
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  complete = false;
  refreshes = 0;
  if (!document.hidden) refresh();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", forgetPlots);
refresh();
