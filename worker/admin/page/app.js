// The page asks the worker once a second how things stand and shows it. Nothing is loaded from elsewhere.
import { showLimits, forgetPlots } from "./limits.js";
import { showPools } from "./pools.js";
import { addHistory, addNow } from "./history.js";
import { number, text } from "./dom.js";
import "./explain.js";

const interval = 1000;
let timer = 0;
let complete = false; // the history has no gap

async function get(path) {
  const reply = await fetch(path, { signal: AbortSignal.timeout(8000) });
  const body = await reply.json();
  if (!reply.ok) throw new Error(body.error);
  return body;
}

async function look() {
  clearTimeout(timer);
  try {
    const now = await get("api/overview");
    if (!complete) {
      addHistory(await get("api/history"));
      complete = true;
    }
    addNow(now);
    show(now);
    live("ok", "live, " + new Date(now.at).toLocaleTimeString());
  } catch (err) {
    complete = false;
    live("lost", "no news: " + err.message);
  }
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(look, interval);
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
  const limiters = now.limits.flatMap((l) => l.limiters);
  const queues = now.pools.flatMap((p) => p.queues);
  const sum = (list, field) => list.reduce((n, x) => n + x[field], 0);
  text(document.getElementById("paused"), number(limiters.filter((l) => l.paused > 0).length));
  text(document.getElementById("parked"), number(sum(now.limits, "parked")));
  text(document.getElementById("waiting"), number(now.waiting));
  text(document.getElementById("pending"), number(sum(queues, "pending")));
  showLimits(now, look);
  showPools(now.pools);
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  complete = false;
  if (!document.hidden) look();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", forgetPlots);
look();
