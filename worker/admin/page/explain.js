// The form that tells which limit holds a job, and until when.
import { text } from "./dom.js";

const form = document.getElementById("explain");
const explanation = document.getElementById("explanation");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const query = new URLSearchParams({ task: form.task.value.trim(), queue: form.queue.value.trim() });
  try {
    const reply = await fetch("api/explain?" + query, { signal: AbortSignal.timeout(8000) });
    const body = await reply.json();
    text(explanation, body.text ?? body.error);
  } catch (err) {
    text(explanation, err.message);
  }
});
