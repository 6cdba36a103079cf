// What is known of the last minutes, by limiter: columns of seconds, used, reserved, allowed, what its API takes at least
// and at most (null where that is not known), and 1 where it was paused.
const remembered = 5 * 60;
const known = new Map();
const none = () => [[], [], [], [], [], [], []];

export function addHistory(history) {
  known.clear();
  for (const [name, points] of Object.entries(history)) {
    for (const point of points) add(name, ...point);
  }
}

export function addNow(now) {
  for (const limit of now.limits) {
    const { accepted = 0, most = 0 } = limit.learnt ?? {};
    for (const l of limit.limiters) add(l.name, now.at, l.used, l.reserved, l.allowed, l.paused > 0 ? 1 : 0, accepted, most);
  }
  for (const [name, [seconds]] of known) {
    if (seconds.at(-1) < now.at / 1000 - remembered) known.delete(name);
  }
}

function add(name, at, used, reserved, allowed, paused, accepted, most) {
  if (!known.has(name)) known.set(name, none());
  const columns = known.get(name);
  const seconds = at / 1000;
  if (columns[0].length && columns[0].at(-1) >= seconds) return;
  [seconds, used, reserved, allowed, accepted || null, most || null, paused].forEach((value, i) => columns[i].push(value));
  while (columns[0][0] < seconds - remembered) columns.forEach((c) => c.shift());
}

export const historyOf = (name) => known.get(name) ?? none();
export const span = remembered;
