// How many jobs run at a time under the limits in flight.
import { duration, make, number, rows, setMeter, text } from "./dom.js";

export function showInFlight(limits) {
  document.getElementById("in-flight-section").hidden = limits.length === 0;
  const lines = limits.flatMap((l) => [{ limit: l }, ...(l.key ? l.values.map((value) => ({ limit: l, value })) : [])]);
  rows(document.getElementById("in-flight-rows"), lines, (x) => `${x.limit.name} ${x.value?.name ?? ""}`, newRow, showRow);
}

function newRow() {
  const meter = make("div", { class: "meter", role: "meter" }, make("span"));
  return make("tr", {}, make("th", { scope: "row" }, make("code"), make("span", { class: "help" })),
    make("td", { "data-label": "slots taken" }, meter, make("span")), make("td", { "data-label": "wait in workers" }), make("td", { "data-label": "parked" }));
}

function showRow(row, { limit, value }) {
  const [head, taken, waiting, parked] = row.children;
  const one = value ?? (limit.key ? null : limit.values[0]);
  text(head.children[0], value ? value.name : limit.name);
  text(head.children[1], value ? "" : about(limit));
  const meter = taken.firstElementChild;
  meter.hidden = !one || one.slots < 1;
  if (!meter.hidden) {
    meter.setAttribute("aria-label", `slots of ${one.name} taken`);
    setMeter(meter, one.taken, one.slots, `${one.taken} of ${one.slots}`);
  }
  text(taken.lastElementChild, one ? words(one) : `${number(limit.slots)} for each value`);
  text(waiting, one ? number(one.waiting) + (one.oldest > 0 ? `, for ${duration(one.oldest)}` : "") : "");
  text(parked, number(value ? value.parked : limit.parked));
}

function about(limit) {
  const key = limit.key ? ` per ${limit.key}` : "";
  const values = limit.key && limit.lines > limit.values.length ? `; ${number(limit.values.length)} of ${number(limit.lines)} with parked jobs are shown` : "";
  return ` ${key} · jobs ${limit.jobs.join(", ")}${values}`;
}

function words(one) {
  if (one.slots < 0) return "cannot be read";
  if (one.slots === 0) return "nobody has used it yet";
  return `${number(one.taken)} of ${number(one.slots)}${one.pinned ? ", pinned" : ""}`;
}
