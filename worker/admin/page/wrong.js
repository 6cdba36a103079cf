// What is wrong, the worst first: what somebody who was woken up has to see.
import { make, number, rows, text } from "./dom.js";
import { recent } from "./hour.js";
import { listJobs } from "./jobs.js";
import { mostOf } from "./workers.js";

const fix = {
  no_handler: "no worker has a handler for them", bad_key: "a limit's key finds no usable value in them", bad_cost: "permits finds no usable number in them",
  bad_share: "a limit's share finds no usable tenant in them",
  cost_above_limit: "they cost more than a limit gives at once", host_not_allowed: "http.allow_hosts does not list their host", unknown_field: "they have a field that no worker reads", bad_request: "their payload describes no request",
};

export function showWrong(now, workers, others) {
  const all = problems(now, workers, others);
  const section = document.getElementById("wrong-section");
  section.dataset.worst = all[0]?.level ?? "none";
  text(document.getElementById("wrong-title"), all.length ? `${all.length} ${all.length === 1 ? "thing needs" : "things need"} attention` : "Nothing needs attention");
  rows(document.getElementById("wrong-list"), all, (p) => p.id, () => make("li", {}, make("span"), make("button", { type: "button", class: "small" })), (li, p) => {
    li.className = p.level;
    text(li.children[0], (p.level === "bad" ? "▲ " : "● ") + p.words);
    const button = li.children[1];
    button.hidden = !p.see;
    text(button, p.label ?? "Show them");
    button.onclick = p.see ?? null;
    button.setAttribute("aria-label", `${p.label ?? "Show them"}: ${p.words}`);
  });
}

// showNoNews says that the page does not show how things stand now.
export function showNoNews() {
  document.getElementById("wrong-section").dataset.worst = "bad";
  text(document.getElementById("wrong-title"), "No news from Redis: what is below may have changed");
}

function problems(now, workers, others) {
  const all = [];
  const add = (level, id, words, see, label) => all.push({ level, id, words, see, label });
  const jobs = (n) => `${number(n)} ${n === 1 ? "job" : "jobs"}`;
  const queues = [...now.pools.flatMap((p) => p.queues), ...others.queues];
  for (const q of queues) {
    const waiting = q.pending + q.parked + q.retry;
    const served = q.served ?? (workers.length === 0 || workers.some((w) => w.pools.some((p) => p.takes && q.name in p.queues)));
    if (!served && waiting) add("bad", "unserved " + q.name, `No worker serves queue ${q.name}, and ${jobs(waiting)} ${waiting === 1 ? "waits" : "wait"} there.`, () => listJobs({ state: "waiting", queue: q.name }));
    if (q.paused) add(waiting ? "bad" : "warn", "queue " + q.name, `Queue ${q.name} is paused${waiting ? `, and ${jobs(waiting)} wait there` : ""}.`, () => jump("queues"), "Go to queues");
  }
  if (others.failed) add("warn", "others", `Queues that this worker does not serve cannot be read: ${others.failed.message}`);
  for (const b of now.blocked) {
    add("bad", `blocked ${b.reason} ${b.type}`, `${jobs(b.jobs)} of type ${b.type} cannot run (${b.reason}): ${fix[b.reason] ?? "see one of them"}.`, () => listJobs({ state: "waiting", by: "type", text: b.type }));
  }
  now.troubles.forEach((l, i) => add(l.level, `limit ${i} ${l.name}`, l.words, (l.name || l.level === "warn") && (() => jump("limits")), "Go to limits"));
  const archived = queues.reduce((n, q) => n + q.archived, 0);
  if (archived) add("warn", "archived", `${jobs(archived)} failed for good and ${archived === 1 ? "is" : "are"} archived.`, () => listJobs({ state: "archived" }));
  const [started, failed, refused] = recent(5);
  if (failed) add(failed > started / 10 ? "bad" : "warn", "failed", `${number(failed)} ${failed === 1 ? "attempt" : "attempts"} failed in the last 5 minutes; ${number(started)} jobs started.`, () => listJobs({ state: "failed" }));
  if (refused) add("warn", "refused", `The API told ${number(refused)} ${refused === 1 ? "attempt" : "attempts"} in the last 5 minutes to try later.`, () => jump("hour"), "Go to the last hour");
  for (const [field, words] of [["config", "another configuration"], ["version", "another version"]]) {
    const common = mostOf(workers.map((w) => w[field]));
    const n = workers.filter((w) => w[field] !== common).length;
    if (n) add("warn", field, `${number(n)} of ${number(workers.length)} workers ${n === 1 ? "has" : "have"} ${words} than the others.`, () => jump("workers"), "Go to workers");
  }
  return all.sort((a, b) => (a.level === b.level ? 0 : a.level === "bad" ? -1 : 1));
}

function jump(id) {
  const el = document.getElementById(id);
  el.scrollIntoView();
  el.focus({ preventScroll: true });
}

