// The form that tells which limit holds a job, and until when.
import { get } from "./request.js";
import { text } from "./dom.js";

const form = document.getElementById("explain");
const explanation = document.getElementById("explanation");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const query = new URLSearchParams({ task: form.task.value.trim(), queue: form.queue.value.trim() });
  try {
    text(explanation, (await get("api/explain?" + query)).text);
  } catch (err) {
    text(explanation, err.message);
  }
});
