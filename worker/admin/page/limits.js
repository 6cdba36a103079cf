// The cards of the limits.
import { duration, make, number, rows, setMeter, text } from "./dom.js";
import { historyOf } from "./history.js";
import { newPlot } from "./plot.js";
import { openChange } from "./change.js";

const plots = new Map(); // by element

// forgetPlots has the plots drawn again: their colours are those of the old scheme.
export function forgetPlots() {
  for (const el of plots.keys()) forget(el);
}

function forget(el) {
  plots.get(el).destroy();
  plots.delete(el);
}

export function showLimits(now, changed) {
  const template = document.getElementById("limit-card").content.firstElementChild;
  rows(document.getElementById("cards"), now.limits, (l) => l.name, () => template.cloneNode(true), (card, limit) => {
    showLimit(card, limit, now.writable, changed);
  });
  for (const el of plots.keys()) if (!el.isConnected) forget(el);
  document.getElementById("limit-filter").hidden = now.limits_in_all <= now.limits.length && !document.getElementById("limit-find").value;
  text(document.getElementById("limit-hidden"), `${number(now.limits.length)} of ${number(now.limits_in_all)} are shown: first those that are broken, paused, or hold jobs.`);
}

function showLimit(card, limit, writable, changed) {
  const one = limit.key ? null : limit.limiters[0];
  card.dataset.paused = Boolean(one && one.paused > 0);
  const title = card.querySelector("h3");
  text(title, limit.name);
  title.id = "limit-" + limit.name;
  card.setAttribute("aria-labelledby", title.id);
  showBadges(card.querySelector(".badges"), limit, one);
  showAbout(card.querySelector(".about"), limit, one);
  showLearnt(card.querySelector(".learnt"), limit.learnt);
  card.querySelector(".one").hidden = !one;
  if (one) showOne(card, limit, one);
  showShares(card.querySelector(".shares"), one);
  showTenants(card.querySelector(".tenants"), limit);
  showMany(card.querySelector(".many"), limit, writable, changed);
  text(card.querySelector(".absent"), limit.broken.length ? limit.broken.join("\n") : limit.limiters.length ? "" : limit.key ? "No jobs are parked for any of its values." : "Nobody has used it yet.");
  showButtons(card.querySelector(":scope > .buttons"), writable ? one : null, changed);
}

function showBadges(el, limit, one) {
  const badges = [];
  if (one && one.paused > 0) badges.push(["paused", pauseWords(one)]);
  if (one && one.pinned) badges.push(["", "pinned"]);
  if (limit.type === "per_client") badges.push(["", "per worker"]);
  if (limit.key) badges.push(["", `per ${limit.key}`]);
  if (limit.share) badges.push(["", `shared by ${limit.share}`]);
  rows(el, badges, ([kind, words]) => kind || words, () => make("span"), (badge, [kind, words]) => {
    badge.className = "badge " + kind;
    text(badge, words);
  });
}

const pauseWords = (l) => `❚❚ paused for ${duration(l.paused)}`;

function showPause(badge, l) {
  badge.hidden = l.paused === 0;
  text(badge, badge.hidden ? "" : pauseWords(l));
}

function showAbout(el, limit, one) {
  const rate = one ? one.rate : limit.configured;
  const differs = one && one.rate !== limit.configured ? ` (the configuration says ${limit.configured})` : "";
  const each = limit.type === "per_client" ? " for each worker" : "";
  text(el, `${rate}${each}${differs} · jobs ${limit.jobs.join(", ")}`);
}

// showLearnt tells what a limit that adapts knows of its API.
function showLearnt(el, learnt) {
  el.hidden = !learnt;
  if (!learnt) return;
  const cuts = learnt.cuts === 0 ? "never cut" : learnt.cuts === 1 ? "cut once" : `cut ${number(learnt.cuts)} times`;
  text(el, `Adapts from ${number(learnt.min)} to ${number(learnt.max)}. Known of what its API takes: ${learnt.known}; ${number(learnt.refused)} of ${number(learnt.taken + learnt.refused)} refused, ${cuts}`);
}

function showOne(card, limit, l) {
  const shown = {
    used: number(l.used), allowed: number(l.allowed), available: number(l.available), reserved: number(l.reserved), parked: number(limit.parked),
    next: l.next_free > 0 ? duration(l.next_free) : "now", interval: duration(l.interval),
  };
  for (const [name, words] of Object.entries(shown)) {
    for (const el of card.querySelectorAll(`[data-show="${name}"]`)) text(el, words);
  }
  const meter = card.querySelector(".one .meter");
  meter.setAttribute("aria-label", `permits of ${limit.name} used`);
  setMeter(meter, l.used, l.allowed, `${l.used} of ${l.allowed} used`);
  const columns = showPlot(card.querySelector(".plot > div"), l, "large");
  card.querySelector(".key.bracket").hidden = !limit.learnt;
  card.querySelector(".key.pause").hidden = !columns[6].includes(1);
}

function showPlot(el, l, size) {
  const columns = historyOf(l.name);
  el.setAttribute("aria-label", `Permits of ${l.name} used over the last minutes: now ${l.used}, at most ${Math.max(0, ...columns[1])}, the limit is ${l.allowed}.`);
  if (!plots.has(el)) plots.set(el, newPlot(el, size));
  plots.get(el).show(columns);
  return columns;
}

// showShares lists what each client has used of a limit of its own.
function showShares(el, one) {
  const clients = one ? one.clients : [];
  el.hidden = clients.length === 0;
  if (!el.firstElementChild) el.append(make("h4", { textContent: "By worker" }), make("ul"));
  const build = () => make("li", {}, make("code"), make("div", { class: "meter", role: "meter" }, make("span")), make("span"));
  rows(el.querySelector("ul"), clients, (c) => c.id, build, (li, c) => {
    const [id, meter, words] = li.children;
    text(id, c.id.length > 12 ? c.id.slice(0, 8) + "…" : c.id);
    id.title = c.id;
    meter.setAttribute("aria-label", `permits used by worker ${c.id}`);
    setMeter(meter, c.used, c.allowed, `${c.used} of ${c.allowed}`);
    text(words, `${number(c.used)} of ${number(c.allowed)}`);
  });
}

// showTenants lists what tenants that have jobs in line get of a limit that they share.
function showTenants(el, limit) {
  el.hidden = limit.tenants.length === 0;
  if (el.hidden) return;
  if (!el.firstElementChild) el.append(make("h4"), make("ul"));
  const hidden = limit.tenants_in_all - limit.tenants.length;
  text(el.firstElementChild, "By tenant, while these wait" + (hidden > 0 ? ` (and ${number(hidden)} more)` : ""));
  const build = () => make("li", {}, make("code"), make("div", { class: "meter", role: "meter" }, make("span")), make("span"));
  rows(el.querySelector("ul"), limit.tenants, (t) => t.tenant, build, (li, t) => {
    const [name, meter, words] = li.children;
    const part = `${number(Math.round(1000 * t.share) / 10)} %`;
    text(name, t.tenant.length > 24 ? t.tenant.slice(0, 20) + "…" : t.tenant);
    name.title = t.tenant;
    meter.setAttribute("aria-label", `share of tenant ${t.tenant}`);
    setMeter(meter, t.share, 1, part);
    text(words, `${part}, weight ${t.weight}, ${number(t.parked)} parked`);
  });
}

// showMany lists the limiters of a limit with a key that have the longest lines.
function showMany(el, limit, writable, changed) {
  el.hidden = !limit.key || limit.limiters.length === 0;
  if (el.hidden) return;
  if (!el.firstElementChild) el.append(make("h4"), make("ul"));
  text(el.firstElementChild, `Jobs are parked for ${number(limit.lines)} ${limit.lines === 1 ? "value" : "values"}, ${number(limit.parked)} in all. The longest lines:`);
  const build = () => make("li", {},
    make("p", {}, make("span", { class: "name" }), make("span", { class: "badge paused" }), make("span", { class: "count" })),
    make("div", { class: "meter", role: "meter" }, make("span")), make("p"), make("div", { class: "spark", role: "img" }), make("div", { class: "buttons" }));
  rows(el.querySelector("ul"), limit.limiters, (l) => l.name, build, (li, l) => {
    const [head, meter, about, plot, buttons] = li.children;
    const [name, badge, count] = head.children;
    text(name, l.name.slice(limit.name.length + 1));
    showPause(badge, l);
    text(count, `${number(l.parked)} parked`);
    setMeter(meter, l.used, l.allowed, `${l.used} of ${l.allowed} used`);
    meter.setAttribute("aria-label", `permits of ${l.name} used`);
    text(about, `${number(l.used)} of ${number(l.allowed)} used` + (l.configured === limit.configured ? "" : `, its own rate ${l.configured}`) + (l.rate === l.configured ? "" : `, changed to ${l.rate}`) + (l.pinned ? ", pinned" : ""));
    showPlot(plot, l, "small");
    showButtons(buttons, writable ? l : null, changed, "small");
  });
}

// showButtons offers what can be done to a limiter; l is null if nothing can.
function showButtons(el, l, changed, size = "") {
  const actions = !l ? [] : l.paused > 0 ? ["rate", "pause", "resume"] : ["rate", "pause"];
  const words = { rate: "Change…", pause: "Pause…", resume: "Resume…" };
  el.hidden = actions.length === 0;
  rows(el, actions, (a) => a, (action) => make("button", { type: "button", class: size, textContent: words[action] }), (button, action) => {
    button.setAttribute("aria-label", `${words[action].slice(0, -1)} ${l.name}`);
    button.onclick = () => openChange(action, l, changed);
  });
}
