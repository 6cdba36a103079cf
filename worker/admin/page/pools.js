// The queues, by pool.
import { openQueue } from "./change.js";
import { make, number, rows, text } from "./dom.js";

const columns = [
  ["weight", "weight"], ["pending", "pending"], ["active", "in workers"], ["parked", "parked"], ["scheduled", "scheduled"],
  ["retry", "to retry"], ["archived", "archived"], ["completed", "completed"],
];

export function showPools(now, others, changed) {
  const pools = others.queues.length ? [...now.pools, { others: true, queues: others.queues }] : now.pools;
  rows(document.getElementById("pools"), pools, (p) => (p.others ? "others" : "pool " + p.name), newPool, (el, pool) => {
    text(el.querySelector("caption"), pool.others ? "Queues that this worker does not serve" + (others.unread ? ` (${number(others.unread)} more are not read)` : "") : `Pool ${pool.name}: ${pool.slots} slots in each worker, ${pool.max_waiting} more jobs may wait there for a limit`);
    el.querySelector("thead th:last-child").hidden = !now.writable;
    rows(el.querySelector("tbody"), pool.queues, (q) => q.name, newQueue, (row, queue) => {
      const [name, badge] = row.children[0].children;
      text(name, queue.name);
      badge.hidden = !queue.paused;
      columns.forEach(([field], i) => text(row.children[i + 1], pool.others && field === "weight" ? "-" : number(queue[field])));
      const cell = row.lastElementChild;
      cell.hidden = !now.writable;
      const button = cell.firstElementChild;
      text(button, queue.paused ? "Unpause…" : "Pause…");
      button.setAttribute("aria-label", `${queue.paused ? "Unpause" : "Pause"} queue ${queue.name}`);
      button.onclick = () => openQueue(queue, changed);
    });
  });
}

function newPool() {
  const head = ["queue", ...columns.map(([, label]) => label)].map((h) => make("th", { scope: "col", textContent: h }));
  head.push(make("th", { scope: "col" }, make("span", { class: "unseen", textContent: "change" })));
  return make("div", { class: "panel" }, make("table", {}, make("caption"), make("thead", {}, make("tr", {}, ...head)), make("tbody")));
}

function newQueue() {
  return make("tr", {}, make("th", { scope: "row" }, make("span"), make("span", { class: "badge paused", textContent: "❚❚ paused" })),
    ...columns.map(([, label]) => make("td", { "data-label": label })), make("td", {}, make("button", { type: "button", class: "small" })));
}
