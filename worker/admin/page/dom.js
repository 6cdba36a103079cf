// What the other files need to build the page: text goes in as text, never as HTML.

export function text(el, words) {
  words = plain(String(words ?? ""));
  if (el.textContent !== words) el.textContent = words;
}

// plain escapes what changes the direction of text, or acts in other ways: names are what strangers make them.
const plain = (words) => words.replace(/[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f]/g,
  (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

export function make(tag, properties = {}, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") el.className = value;
    else if (name in el) el[name] = value;
    else el.setAttribute(name, value);
  }
  el.append(...children);
  return el;
}

export const number = (n) => n.toLocaleString("en");

// duration reads well at a glance: 120 ms, 1.4 s, 28 s, 5 m 10 s, 2 h 5 m.
export function duration(ms) {
  if (ms < 1000) return `${ms} ms`;
  const s = ms / 1000;
  if (s < 10) return `${Number(s.toFixed(1))} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const pair = (big, a, small, b) => (small ? `${big} ${a} ${small} ${b}` : `${big} ${a}`);
  const all = Math.round(s);
  if (s < 3600) return pair(Math.floor(all / 60), "m", all % 60, "s");
  const minutes = Math.round(s / 60);
  return pair(Math.floor(minutes / 60), "h", minutes % 60, "m");
}

// setMeter shows a share as a bar, with the same in words.
export function setMeter(el, value, max, words) {
  el.setAttribute("aria-valuemin", 0);
  el.setAttribute("aria-valuemax", max);
  el.setAttribute("aria-valuenow", Math.min(value, max));
  el.setAttribute("aria-valuetext", words);
  el.firstElementChild.style.width = `${Math.min(100, (100 * value) / Math.max(max, 1))}%`;
}

// rows keeps the rows of a table body in step with a list, so that what has the focus stays. Each item has a key of its own.
export function rows(body, list, key, build, update) {
  const old = new Map([...body.children].map((row) => [row.dataset.key, row]));
  list.forEach((item, i) => {
    const row = old.get(key(item)) ?? build(item);
    old.delete(key(item));
    row.dataset.key = key(item);
    if (body.children[i] !== row) body.insertBefore(row, body.children[i] ?? null);
    update(row, item);
  });
  while (body.children.length > list.length) body.lastElementChild.remove();
}
