// The list of jobs, what is in one of them, and what can be done to them.
import { duration, make, number, rows, text } from "./dom.js";
import { ask, get } from "./request.js";

const form = document.getElementById("find");
const status = document.getElementById("jobs-status");
const body = document.getElementById("jobs-rows");
const table = document.getElementById("jobs-table");
const all = document.getElementById("jobs-all");
const next = document.getElementById("jobs-next");
const dialog = document.getElementById("job");
const page = 500;
const rest = 125; // ms between parts of a search: it reads many jobs of Redis
let shown = { jobs: [], next: "", query: null };
let asked = 0;
let changeable = false;
let changed = () => {};

const why = {
  limit: "waits for", limit_paused: "waits for the paused", called: "was called by", in_worker: "waits in a worker", refused: "its API said to try later",
  queue_paused: "its queue is paused", slot: "waits for a free slot", no_handler: "no worker has a handler", bad_key: "no usable value for a key", bad_cost: "no usable number of permits",
  cost_above_limit: "costs more than a limit gives", host_not_allowed: "its host is not allowed", unknown_field: "has an unknown field", bad_request: "describes no request", bad_share: "no usable tenant",
  in_flight: "waits for a slot of", max_in_flight: "waits until fewer of its pattern run",
};

export function allowChanges(writable, after) {
  changeable = writable;
  changed = after;
  for (const el of document.querySelectorAll("#jobs-panel [data-writes], #job [data-writes]")) el.hidden = !writable;
  showActions();
}

// listJobs shows jobs, as if somebody had filled in the form.
export function listJobs({ state, by = "type", text: words = "", queue = "" }) {
  form.state.value = state;
  form.by.value = by;
  form.text.value = words;
  form.queue.value = queue;
  search();
  const title = document.getElementById("jobs");
  title.scrollIntoView();
  title.focus({ preventScroll: true });
}

form.addEventListener("submit", (event) => { event.preventDefault(); search(); });
form.addEventListener("change", (event) => { if (event.target.name === "state") search(); });
next.addEventListener("click", () => load(shown.query, shown.next));
all.addEventListener("change", () => {
  for (const box of boxes()) box.checked = all.checked;
  showActions();
});
body.addEventListener("change", showActions);

function search() {
  const words = form.text.value.trim();
  if (form.by.value === "id" && words) {
    openJob(words, form.queue.value.trim());
    return;
  }
  const query = { state: form.state.value, queue: form.queue.value.trim() };
  if (words) query[form.by.value] = words;
  load(query, "");
}

// load reads a page of jobs. A search may look at many jobs for few: it goes on, part by part, until the page is full.
async function load(query, after) {
  const mine = ++asked;
  const jobs = [];
  let at = 0, parts = 0;
  table.hidden = true;
  text(status, "searching …");
  document.getElementById("jobs-panel").setAttribute("aria-busy", "true");
  try {
    do {
      if (parts++) await new Promise((done) => setTimeout(done, rest));
      if (mine !== asked) return;
      const reply = await get("api/jobs?" + new URLSearchParams({ ...query, after }));
      if (mine !== asked) return;
      jobs.push(...reply.jobs);
      after = reply.next ?? "";
      at = Date.parse(reply.at) || at;
      text(status, `searching … ${number(jobs.length)} so far`);
    } while (after && jobs.length < page);
    shown = { jobs, next: after, query };
    draw(at);
  } catch (err) {
    if (mine === asked) text(status, err.message);
  } finally {
    if (mine === asked) document.getElementById("jobs-panel").removeAttribute("aria-busy");
  }
}

function draw(at) {
  const { jobs, query } = shown;
  next.hidden = !shown.next;
  table.hidden = jobs.length === 0;
  const what = query.state + (query.type ? ` of type ${query.type}` : query.value ? ` for ${query.value}` : query.limit ? ` for limit ${query.limit}` : "") + (query.queue ? ` in queue ${query.queue}` : "");
  text(status, jobs.length ? `${number(jobs.length)} ${what}${shown.next ? ", and there are more" : ""}; as of ${new Date(at).toLocaleTimeString()}` : `No jobs ${what}.`);
  all.checked = false;
  body.replaceChildren(); // another list: nothing of the old one is selected
  rows(body, jobs, (j) => j.queue + "\n" + j.id, newRow, (row, j) => showRow(row, j, at));
  showActions();
}

function newRow(j) {
  const box = make("input", { type: "checkbox" });
  box.setAttribute("aria-label", `select job ${j.id}`);
  return make("tr", {},
    make("td", { class: "pick" }, box),
    make("th", { scope: "row" }, make("button", { type: "button", class: "link" })),
    make("td", { "data-label": "type" }), make("td", { "data-label": "queue" }), make("td", { "data-label": "why" }),
    make("td", { "data-label": "since" }), make("td", { "data-label": "next try" }));
}

function showRow(row, j, at) {
  const [pick, id, type, queue, reason, since, when] = row.children;
  pick.hidden = !changeable;
  const open = id.firstElementChild;
  text(open, j.id);
  open.onclick = () => openJob(j.id, j.queue);
  text(type, j.type);
  text(queue, j.queue);
  text(reason, reasonOf(j));
  text(since, ago(j.since, at));
  text(when, j.next ? until(j.next, at) : "");
}

const reasonOf = (j) => (j.state === "waiting" ? [why[j.why] ?? j.why, ["limit", "limit_paused", "called", "in_flight"].includes(j.why) ? j.limit : ""].join(" ").trim() : j.last_error || "without an error");
const ago = (time, at) => (time ? `${duration(Math.max(0, at - Date.parse(time)))} ago` : "");
const until = (time, at) => (Date.parse(time) > at ? `in ${duration(Math.round(Date.parse(time) - at))}` : "now");

const boxes = () => [...body.querySelectorAll(".pick input")];
const picked = () => boxes().flatMap((box, i) => (box.checked ? [{ queue: shown.jobs[i].queue, id: shown.jobs[i].id }] : []));

function showActions() {
  const bar = document.getElementById("jobs-actions");
  const state = shown.query?.state;
  bar.hidden = !changeable || !shown.jobs.length;
  if (bar.hidden) return;
  const n = picked().length;
  const retries = state !== "waiting";
  const whole = retries && (shown.query.value || shown.query.limit ? false : true);
  const buttons = { "retry-picked": retries, "delete-picked": true, "retry-all": whole, "delete-all": whole };
  for (const [id, offered] of Object.entries(buttons)) {
    const el = document.getElementById(id);
    el.hidden = !offered;
    if (id.endsWith("picked")) el.disabled = n === 0;
  }
  text(document.getElementById("retry-picked"), `Retry ${number(n)} selected…`);
  text(document.getElementById("delete-picked"), `Delete ${number(n)} selected…`);
  text(document.getElementById("retry-all"), `Retry all ${allOf()}…`);
  text(document.getElementById("delete-all"), `Delete all ${allOf()}…`);
}

const allOf = () => shown.query.state + (shown.query.type ? ` of type ${shown.query.type}` : "") + (shown.query.queue ? ` in ${shown.query.queue}` : "");

document.getElementById("retry-picked").addEventListener("click", () => change("retry", { jobs: picked(), state: shown.query.state }));
document.getElementById("delete-picked").addEventListener("click", () => change("delete", { jobs: picked(), state: shown.query.state }));
const whole = () => ({ all: true, state: shown.query.state, queue: shown.query.queue, type: shown.query.type ?? "" });
document.getElementById("retry-all").addEventListener("click", () => change("retry", whole()));
document.getElementById("delete-all").addEventListener("click", () => change("delete", whole()));

// change asks, and then works through the jobs, part by part, until none is left.
function change(what, meant, after = () => load(shown.query, "")) {
  const retry = what === "retry";
  const words = meant.all ? `all jobs that are ${allOf()}` : meant.jobs.length === 1 ? `job ${meant.jobs[0].id}` : `${number(meant.jobs.length)} jobs`;
  const careful = !retry && (meant.all || meant.jobs.length > 1);
  ask({
    title: `${retry ? "Retry" : "Delete"} ${words}`,
    text: retry ? "They go back to their queues, and run as soon as their limits allow. First fix what made them fail." : "They are gone for good: nothing brings them back.",
    submit: retry ? "Retry" : "Delete",
    danger: !retry,
    field: careful ? "confirm" : "",
    run: async (post, form, show) => {
      if (careful && form.confirm.value.trim().toLowerCase() !== "delete") throw new Error("Write delete to go on.");
      let done = 0;
      for (let after = ""; ;) {
        const reply = await post(`api/jobs/${what}`, after ? { ...meant, after } : meant);
        done += reply.done;
        if (!reply.more) break;
        after = reply.after ?? "";
        if (!show(`${number(done)} so far …`)) return `Cancelled: ${number(done)} ${done === 1 ? "job is" : "jobs are"} ${retry ? "back in their queues" : "deleted"}, the others are as they were.`;
      }
      return `${number(done)} ${done === 1 ? "job is" : "jobs are"} ${retry ? "back in their queues" : "deleted"}.`;
    },
    after: () => { after(); changed(); },
  });
}

// openJob shows what is in a job.
export async function openJob(id, queue) {
  text(status, "");
  let job;
  try {
    job = await get("api/job?" + new URLSearchParams({ task: id, queue }));
  } catch (err) {
    text(status, err.message);
    return;
  }
  text(document.getElementById("job-title"), job.id);
  const facts = [["type", job.type], ["queue", job.queue], ["state", job.state], ["retries", `${job.retried} of ${job.max_retry}`], ["timeout", job.timeout ?? ""]].filter(([, v]) => v !== "");
  rows(document.getElementById("job-facts"), facts, ([k]) => k, () => make("div", {}, make("dt"), make("dd")), (el, [k, v]) => { text(el.children[0], k); text(el.children[1], v); });
  text(document.getElementById("job-why"), job.why.join("\n"));
  fill("job-error", job.last_error);
  fill("job-payload", job.payload);
  fill("job-headers", Object.entries(job.headers ?? {}).map(([k, v]) => `${k}: ${v}`).join("\n"));
  fill("job-result", job.result);
  rows(document.getElementById("job-past"), job.past ?? [], (p) => p.at + p.what, () => make("li", {}, make("time"), make("span")), (li, p) => {
    text(li.children[0], new Date(p.at).toLocaleString());
    text(li.children[1], p.what);
  });
  document.getElementById("job-past").previousElementSibling.hidden = !job.past?.length;
  const state = { parked: "waiting", pending: "waiting", retry: "failed", archived: "archived" }[job.state];
  const meant = { jobs: [{ queue: job.queue, id: job.id }], state };
  const after = () => { if (shown.query) load(shown.query, ""); };
  button("job-retry", changeable && (state === "failed" || state === "archived"), () => { dialog.close(); change("retry", meant, after); });
  button("job-delete", changeable && Boolean(state), () => { dialog.close(); change("delete", meant, after); });
  dialog.showModal();
}

function fill(id, words) {
  const el = document.getElementById(id);
  text(el, words ?? "");
  el.hidden = el.previousElementSibling.hidden = !words;
}

function button(id, offered, click) {
  const el = document.getElementById(id);
  el.hidden = !offered;
  el.onclick = click;
}

document.getElementById("job-close").addEventListener("click", () => dialog.close());
