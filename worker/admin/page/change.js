// What can be done to a limiter and to a queue.
import { ask } from "./request.js";

const actions = {
  rate: { title: "Change", text: "All workers follow at once.", body: (form) => ({ rate: form.rate.value.trim(), pin: form.pin.checked }) },
  pause: { title: "Pause", text: "Until then, no worker starts a job that needs this limit.", body: (form) => ({ for: form.for.value.trim() }) },
  resume: { title: "Resume", text: "Its jobs start again at once.", body: () => ({}) },
};

export function openChange(action, limiter, changed) {
  const a = actions[action];
  let refused = null; // what needs a yes, and has got it if it is sent once more
  ask({
    title: `${a.title} ${limiter.name}`,
    text: a.text,
    submit: a.title,
    field: action,
    fill: (form) => {
      form.rate.value = limiter.rate;
      form.pin.checked = limiter.pinned;
      form.for.value = "5m";
    },
    run: async (post, form) => {
      const body = a.body(form);
      const words = JSON.stringify(body);
      try {
        await post(`api/limits/${encodeURIComponent(limiter.name)}/${action}`, words === refused ? { ...body, yes: true } : body);
      } catch (err) {
        refused = err.status === 409 ? words : null;
        throw err;
      }
      return `${a.title}: ${limiter.name} is done.`;
    },
    edited: () => { refused = null; },
    after: changed,
  });
}

export function openQueue(queue, changed) {
  const pause = !queue.paused;
  const title = pause ? "Pause" : "Unpause";
  ask({
    title: `${title} queue ${queue.name}`,
    text: pause ? "No worker takes a job from it until it is unpaused. What runs goes on; new jobs are still accepted." : "Workers take its jobs again at once.",
    submit: title,
    run: async (post) => {
      await post(`api/queues/${encodeURIComponent(queue.name)}/${pause ? "pause" : "unpause"}`, {});
      return `Queue ${queue.name} is ${pause ? "paused" : "unpaused"}.`;
    },
    after: changed,
  });
}
