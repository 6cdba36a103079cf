// What is known of the last minutes, by limiter: columns of seconds, used, reserved, allowed, and 1 where it was paused.
const remembered = 5 * 60;
const known = new Map();
const none = () => [[], [], [], [], []];

export function addHistory(history) {
  known.clear();
  for (const [name, points] of Object.entries(history)) {
    for (const point of points) add(name, ...point);
  }
}

export function addNow(now) {
  for (const l of now.limits.flatMap((limit) => limit.limiters)) {
    add(l.name, now.at, l.used, l.reserved, l.allowed, l.paused > 0 ? 1 : 0);
  }
  for (const [name, [seconds]] of known) {
    if (seconds.at(-1) < now.at / 1000 - remembered) known.delete(name);
  }
}

function add(name, at, ...values) {
  if (!known.has(name)) known.set(name, none());
  const columns = known.get(name);
  const seconds = at / 1000;
  if (columns[0].length && columns[0].at(-1) >= seconds) return;
  [seconds, ...values].forEach((value, i) => columns[i].push(value));
  while (columns[0][0] < seconds - remembered) columns.forEach((c) => c.shift());
}

export const historyOf = (name) => known.get(name) ?? none();
export const span = remembered;
