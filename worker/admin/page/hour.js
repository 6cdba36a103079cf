// The last hour of the fleet, as it is kept in Redis: small charts, with the same in words and in a table.
import { duration, make, number, rows, text } from "./dom.js";

const width = 360, height = 64;
const select = document.getElementById("hour-of");
let past = null;

const charts = [
  { id: "hour-started", title: "Jobs started", unit: (n, p) => `${number(Math.round(n * 60000 / p.span))} a minute`, series: [[0, "line"]], sum: true },
  { id: "hour-failed", title: "Attempts that failed, and that the API refused", unit: (n, p) => `${number(Math.round(n * 60000 / p.span))} a minute`, series: [[1, "bad"], [2, "warn"]], sum: true },
  { id: "hour-waited", title: "How long jobs waited: on average, and the longest", unit: (n) => duration(n), series: [[4, "faint"], [3, "line"]], sum: false },
];

export function showHour(reply) {
  past = reply;
  const names = Object.keys(reply.limits).filter((n) => n !== "").sort();
  rows(select, ["", ...names], (n) => n, (n) => make("option", { value: n, textContent: n || "all jobs" }), () => {});
  draw();
}

select.addEventListener("change", draw);

const empty = (p) => Array.from({ length: Math.round(3600000 / p.span) + 1 }, () => [0, 0, 0, 0, 0]);

function draw() {
  if (!past) return;
  const spans = (past.limits[select.value] ?? empty(past)).map((s) => s ?? [0, 0, 0, 0, 0]);
  for (const chart of charts) drawChart(document.getElementById(chart.id), chart, spans);
  drawTable(spans);
}

function drawChart(el, chart, spans) {
  const whole = spans.slice(0, -1); // the last is under way
  const most = Math.max(1, ...chart.series.flatMap(([i]) => whole.map((s) => s[i])));
  const peak = Math.max(0, ...chart.series.flatMap(([i]) => whole.map((s) => s[i])));
  const sums = chart.series.map(([i]) => spans.reduce((n, s) => n + s[i], 0));
  const about = chart.sum ? `${sums.map(number).join(" and ")} in the last hour, at most ${chart.unit(peak, past)}` : `the longest ${chart.unit(peak, past)}`;
  if (!el.firstElementChild) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    for (const [, kind] of chart.series) {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("class", kind);
      path.setAttribute("vector-effect", "non-scaling-stroke");
      svg.append(path);
    }
    el.append(make("figcaption", {}, make("b", { textContent: chart.title }), make("span")), svg, make("p", { class: "axis" }, make("span", { textContent: "an hour ago" }), make("span", { textContent: "now" })));
  }
  text(el.querySelector("figcaption span"), about);
  const svg = el.querySelector("svg");
  svg.setAttribute("aria-label", `${chart.title}: ${about}.`);
  chart.series.forEach(([i, kind], n) => svg.children[n].setAttribute("d", shape(whole.map((s) => s[i]), most, kind !== "line")));
}

// shape is a line of steps, or the area below it.
function shape(values, most, area) {
  const base = area ? height : height - 2; // nothing has no area, and a line that one sees
  const x = (i) => (width * i / values.length).toFixed(1), y = (v) => (base - (base - 4) * v / most).toFixed(1);
  let d = area ? `M0 ${height}` : `M0 ${y(values[0] ?? 0)}`;
  values.forEach((v, i) => { d += `${area || i ? "L" : "M"}${x(i)} ${y(v)}L${x(i + 1)} ${y(v)}`; });
  return area ? d + `L${width} ${height}Z` : d;
}

// drawTable has twelve rows of five minutes.
function drawTable(spans) {
  const each = Math.round(300000 / past.span);
  const list = [];
  for (let i = 0; i + each <= spans.length; i += each) {
    const part = spans.slice(i, i + each);
    const sum = (n) => part.reduce((all, s) => all + s[n], 0);
    const started = sum(0);
    const waited = started ? part.reduce((all, s) => all + s[0] * s[3], 0) / started : 0;
    list.push({ at: past.from + i * past.span, cells: [number(started), number(sum(1)), number(sum(2)), duration(Math.round(waited)), duration(Math.max(...part.map((s) => s[4])))] });
  }
  const labels = ["started", "failed", "refused", "mean wait", "longest wait"];
  const build = () => make("tr", {}, make("th", { scope: "row" }), ...labels.map((l) => make("td", { "data-label": l })));
  rows(document.getElementById("hour-rows"), list.reverse(), (r) => String(r.at), build, (row, r) => {
    text(row.children[0], "from " + new Date(r.at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }));
    r.cells.forEach((words, i) => text(row.children[i + 1], words));
  });
}

// recent is what happened in the last minutes, over all jobs.
export function recent(minutes) {
  const spans = past?.limits[""];
  if (!spans) return [0, 0, 0];
  const part = spans.slice(-Math.round(minutes * 60000 / past.span));
  return [0, 1, 2].map((n) => part.reduce((all, s) => all + (s?.[n] ?? 0), 0));
}
