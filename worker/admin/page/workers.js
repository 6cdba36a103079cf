// The workers of the fleet: what they serve, how busy they are, and in what they differ.
import { duration, make, number, rows, setMeter, text } from "./dom.js";

export function showWorkers(workers, now, unread) {
  const commonest = (field) => mostOf(workers.map((w) => w[field]));
  const version = commonest("version"), config = commonest("config");
  const list = workers.slice(0, 200);
  const pools = workers.flatMap((w) => w.pools);
  const sum = (field) => pools.reduce((n, p) => n + p[field], 0);
  text(document.getElementById("workers-about"), unread ? `The workers cannot be read: ${unread.message}` : workers.length === 0
    ? "No worker has reported to Redis. Workers of earlier versions do not report."
    : `${number(workers.length)} ${workers.length === 1 ? "worker" : "workers"}, ${number(sum("running"))} of ${number(sum("slots"))} slots in use, ${number(sum("waiting"))} more jobs wait in them` +
      (workers.length > list.length ? `. The first ${list.length}:` : "."));
  document.querySelector("#workers-panel table").hidden = workers.length === 0;
  rows(document.getElementById("workers-rows"), list, (w) => w.id, newWorker, (row, w) => {
    const [name, pool, about, versions, since] = row.children;
    text(name.firstElementChild, `${w.host}, process ${w.pid}`);
    text(name.lastElementChild, w.id);
    rows(pool.firstElementChild, w.pools, (p) => p.name, newLoad, (el, p) => {
      text(el.children[0], p.name);
      setMeter(el.children[1], p.running, p.slots, `${p.running} of ${p.slots} slots in use`);
      el.children[1].setAttribute("aria-label", `slots of pool ${p.name} in use`);
      text(el.children[2], `${number(p.running)} of ${number(p.slots)}${p.waiting ? `, ${number(p.waiting)} wait` : ""}${p.takes ? "" : ", takes no jobs now"}`);
    });
    text(about, w.pools.flatMap((p) => Object.entries(p.queues).map(([q, weight]) => `${q} ${weight}`)).join(", "));
    mark(versions.children[0], w.version, w.version !== version, "another version");
    mark(versions.children[1], `configuration ${w.config}`, w.config !== config, "another configuration");
    text(since, w.started ? duration(Math.max(0, now - w.started)) : "");
  });
}

function mark(el, words, differs, why) {
  text(el, differs ? `▲ ${words} (${why})` : words);
  el.classList.toggle("differs", differs);
}

export function mostOf(values) {
  const counts = new Map();
  for (const v of values) counts.set(v, (counts.get(v) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0];
}

function newWorker() {
  return make("tr", {},
    make("th", { scope: "row" }, make("span"), make("code")),
    make("td", { "data-label": "slots in use" }, make("ul", { class: "loads" })),
    make("td", { "data-label": "queues" }),
    make("td", { "data-label": "version" }, make("span"), make("span")),
    make("td", { "data-label": "runs for" }));
}

function newLoad() {
  return make("li", {}, make("span"), make("div", { class: "meter", role: "meter" }, make("span")), make("span"));
}
