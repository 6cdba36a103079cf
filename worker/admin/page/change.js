// The dialog that changes, pauses and resumes a limiter. The token stays in this tab.
import { text } from "./dom.js";

const stored = "jobthrottle-token";
const dialog = document.getElementById("change");
const form = document.getElementById("change-form");
const wrong = document.getElementById("wrong");
const said = document.getElementById("said");
let current = null;
let toast = 0;

const actions = {
  rate: { title: "Change", text: "In force for the whole fleet at once.", submit: "Change", body: () => ({ rate: form.rate.value.trim(), pin: form.pin.checked }) },
  pause: { title: "Pause", text: "No job of the fleet starts on it until then.", submit: "Pause", body: () => ({ for: form.for.value.trim() }) },
  resume: { title: "Resume", text: "Its jobs start again at once.", submit: "Resume", body: () => ({}) },
};

export function openChange(action, limiter, changed) {
  current = { action, limiter, changed };
  const a = actions[action];
  text(document.getElementById("change-title"), `${a.title} ${limiter.name}`);
  text(document.getElementById("change-text"), a.text);
  text(document.getElementById("submit"), a.submit);
  text(wrong, "");
  form.rate.value = limiter.rate;
  form.pin.checked = limiter.pinned;
  form.for.value = "5m";
  form.token.value = "";
  showFields();
  dialog.showModal();
  const first = form.querySelector("div:not([hidden]) > input");
  if (first) { first.focus(); first.select(); } else document.getElementById("submit").focus();
}

function showFields() {
  for (const el of form.querySelectorAll("[data-for]")) {
    el.hidden = el.dataset.for === "token" ? sessionStorage.getItem(stored) !== null : el.dataset.for !== current.action;
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { action, limiter, changed } = current;
  const token = sessionStorage.getItem(stored) ?? form.token.value;
  text(wrong, "");
  try {
    const reply = await fetch(`api/limits/${encodeURIComponent(limiter.name)}/${action}`, {
      method: "POST",
      headers: { "Authorization": "Bearer " + token, "Content-Type": "application/json" },
      body: JSON.stringify(actions[action].body()),
      signal: AbortSignal.timeout(8000),
    });
    const body = await reply.json();
    if (reply.status === 401) sessionStorage.removeItem(stored);
    else if (reply.status !== 403) sessionStorage.setItem(stored, token);
    if (!reply.ok) throw new Error(body.error);
  } catch (err) {
    showFields();
    text(wrong, err.message);
    return;
  }
  dialog.close();
  say(`${actions[action].title}: ${limiter.name} is done.`);
  changed();
});

document.getElementById("cancel").addEventListener("click", () => dialog.close());

function say(words) {
  clearTimeout(toast);
  text(said, words);
  toast = setTimeout(() => text(said, ""), 5000);
}
