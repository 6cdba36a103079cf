// What the page asks the worker, and the dialog in front of every change. The token stays in this tab.
import { text } from "./dom.js";

const stored = "jobthrottle-token";
const dialog = document.getElementById("change");
const form = document.getElementById("change-form");
const wrong = document.getElementById("wrong");
const said = document.getElementById("said");
const submit = document.getElementById("submit");
let current = null;
let toast = 0;

export async function get(path) {
  const token = sessionStorage.getItem(stored);
  const reply = await fetch(path, { signal: AbortSignal.timeout(8000), headers: token === null ? {} : { "Authorization": "Bearer " + token } });
  const body = await reply.json();
  if (reply.status === 401) sessionStorage.removeItem(stored);
  if (!reply.ok) throw new Error(body.error);
  return body;
}

// ask opens the dialog. Its field, one of those with data-for, is shown; run gets post, which sends a change with the
// token, and show, which tells how far it is and whether to go on; it returns what to say when it is done. Edited is
// called when a field is changed: a yes is to what was asked about.
export function ask(question) {
  current = question;
  text(document.getElementById("change-title"), question.title);
  text(document.getElementById("change-text"), question.text);
  offer(question.submit, question.danger);
  busy(false);
  text(wrong, "");
  form.reset();
  form.token.value = "";
  question.fill?.(form);
  showFields();
  dialog.showModal();
  const first = form.querySelector("div:not([hidden]) > input");
  if (first) { first.focus(); first.select(); } else submit.focus();
}

// busy keeps what was sent as it is while it is under way.
function busy(is) {
  submit.disabled = is;
  for (const el of form.querySelectorAll("input")) el[el.type === "checkbox" ? "disabled" : "readOnly"] = is;
}

// offer says what the button does.
function offer(words, danger) {
  text(submit, words);
  submit.classList.toggle("danger", Boolean(danger));
}

function showFields() {
  for (const el of form.querySelectorAll("[data-for]")) {
    el.hidden = el.dataset.for === "token" ? sessionStorage.getItem(stored) !== null : el.dataset.for !== current.field;
  }
}

async function post(path, change) {
  const token = sessionStorage.getItem(stored) ?? form.token.value;
  const reply = await fetch(path, {
    method: "POST",
    headers: { "Authorization": "Bearer " + token, "Content-Type": "application/json" },
    body: JSON.stringify(change),
    signal: AbortSignal.timeout(14000),
  });
  const body = await reply.json();
  if (reply.status === 401) sessionStorage.removeItem(stored);
  else if (reply.ok || reply.status === 409) sessionStorage.setItem(stored, token);
  if (!reply.ok) throw Object.assign(new Error(body.error), { status: reply.status });
  return body;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (submit.disabled) return;
  const question = current;
  const asked = () => current === question; // it was not cancelled meanwhile
  text(wrong, "");
  offer(question.submit, question.danger);
  busy(true);
  try {
    const done = await question.run(post, form, (words) => {
      if (asked()) text(document.getElementById("change-text"), words);
      return asked();
    });
    if (asked()) dialog.close();
    say(done);
  } catch (err) {
    if (!asked()) {
      say(`${question.title}: ${err.message}`);
      return;
    }
    showFields();
    text(wrong, err.message);
    if (err.status === 409) offer(`${question.submit} all the same`, true);
    return;
  } finally {
    if (asked()) busy(false);
  }
  question.after();
});

form.addEventListener("input", () => {
  if (!current) return; // somebody fills in a form that nobody sees
  current.edited?.();
  text(wrong, "");
  offer(current.submit, current.danger);
});
dialog.addEventListener("close", () => { if (!dialog.open) current = null; });

document.getElementById("cancel").addEventListener("click", () => dialog.close());

function say(words) {
  clearTimeout(toast);
  text(said, words);
  toast = setTimeout(() => text(said, ""), 5000);
}
