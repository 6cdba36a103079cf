// The queues, by pool.
import { make, number, rows, text } from "./dom.js";

const columns = [
  ["weight", "weight"], ["pending", "pending"], ["active", "running"], ["parked", "parked"], ["scheduled", "scheduled"],
  ["retry", "to retry"], ["archived", "archived"], ["completed", "kept done"],
];

export function showPools(pools) {
  rows(document.getElementById("pools"), pools, (p) => p.name, newPool, (el, pool) => {
    text(el.querySelector("caption"), `Pool ${pool.name}: ${pool.slots} slots in each worker, ${pool.max_waiting} of them may wait for a limit`);
    rows(el.querySelector("tbody"), pool.queues, (q) => q.name, newQueue, (row, queue) => {
      text(row.children[0], queue.paused ? `${queue.name} (paused)` : queue.name);
      columns.forEach(([field], i) => text(row.children[i + 1], number(queue[field])));
    });
  });
}

function newPool() {
  const head = ["queue", ...columns.map(([, label]) => label)].map((h) => make("th", { scope: "col", textContent: h }));
  return make("div", { class: "panel" }, make("table", {}, make("caption"), make("thead", {}, make("tr", {}, ...head)), make("tbody")));
}

function newQueue() {
  return make("tr", {}, make("th", { scope: "row" }), ...columns.map(([, label]) => make("td", { "data-label": label })));
}
