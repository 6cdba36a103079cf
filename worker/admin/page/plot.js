// A limit's last minutes: used as an area, the limit and what is reserved as lines of their own kind, what its API takes
// between two lines, pauses as bands.
import { span } from "./history.js";

const heights = { large: 130, small: 44 };
const shortest = 60; // seconds that a plot shows at least

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// newPlot returns an empty plot in el, which shows columns of history.js. A small one does without axes.
export function newPlot(el, size) {
  let paused = [[], []]; // seconds, and whether it was paused then
  const axis = { stroke: color("--soft"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const plot = new uPlot({
    width: Math.max(el.clientWidth, 100),
    height: heights[size],
    padding: size === "small" ? [2, 0, 2, 0] : [8, 18, 0, 0],
    cursor: { show: false },
    legend: { show: false },
    scales: {
      x: { time: false, range: (_, min, max) => [max - Math.min(Math.max(max - min, shortest), span), max] },
      y: { range: (_, min, max) => [0, Math.max(max * 1.08, 1)] },
    },
    axes: size === "small" ? [{ show: false }, { show: false }] : [{ ...axis, size: 28, gap: 8, splits: seconds, values: ago }, { ...axis, size: 46, space: 34, incrs: [1, 2, 5, 10, 25, 50, 100, 250, 500, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9] }],
    series: [
      {},
      { stroke: color("--blue"), fill: color("--blue-soft"), width: 1.5, points: { show: false } },
      { stroke: color("--reserved"), width: 1.5, dash: [2, 3], points: { show: false } },
      { stroke: color("--red"), width: 2, dash: [6, 4], points: { show: false }, paths: uPlot.paths.stepped({ align: -1 }) },
      ...[0, 1].map(() => ({ stroke: color("--green"), width: 1, points: { show: false }, paths: uPlot.paths.stepped({ align: -1 }) })),
    ],
    bands: [{ series: [5, 4], fill: color("--green-soft") }],
    hooks: { drawClear: [(plot) => drawPauses(plot, ...paused)] },
  }, [[], [], [], [], [], []], el);
  return { show, destroy: () => plot.destroy() };

  function show(columns) {
    paused = [columns[0], columns[6]];
    const width = Math.max(el.clientWidth, 100);
    if (plot.width !== width) plot.setSize({ width, height: plot.height });
    plot.setData(columns.slice(0, 6));
  }
}

// seconds are where the marks of the time axis go, counted from now.
function seconds(plot, axis, min, max) {
  const step = max - min <= 75 ? 15 : max - min <= 150 ? 30 : 60;
  const marks = [];
  for (let at = max; at >= min; at -= step) marks.unshift(at);
  return marks;
}

function ago(plot, marks) {
  return marks.map((at) => {
    const s = Math.round(plot.scales.x.max - at);
    return s === 0 ? "now" : s % 60 ? `−${s} s` : `−${s / 60} min`;
  });
}

function drawPauses(plot, at, paused) {
  const { left, top, width, height } = plot.bbox;
  plot.ctx.fillStyle = color("--amber-soft");
  for (let i = 1; i < at.length; i++) {
    if (!paused[i]) continue;
    const from = Math.max(plot.valToPos(at[i - 1], "x", true), left);
    const to = Math.min(plot.valToPos(at[i], "x", true), left + width);
    if (to > from) plot.ctx.fillRect(from, top, to - from, height);
  }
}
