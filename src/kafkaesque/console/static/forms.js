// The operator's dialogs and buttons: they call the API and show its result.

let csrf = null;

async function token() {
  if (csrf === null) {
    const response = await fetch("/api/session");
    csrf = (await response.json()).csrf;
  }
  return csrf;
}

export async function call(request, body) {
  const [method, path] = request.split(" ");
  const headers = { "Content-Type": "application/json" };
  const csrfToken = await token();
  if (csrfToken) headers["X-CSRF-Token"] = csrfToken;
  const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const document = await response.json().catch(() => ({ error: response.statusText }));
  if (!response.ok) throw new Error(document.error || response.statusText);
  return document;
}

function read(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.name.startsWith("-") || field.type === "submit") continue;
    const type = field.dataset.type;
    if (type === "number") { if (field.value !== "") body[field.name] = Number(field.value); }
    else if (type === "nullable") { if (field.value !== "") body[field.name] = field.value; }
    else if (type === "headers") {
      body[field.name] = Object.fromEntries(field.value.split("\n").filter((line) => line.includes(":")).map((line) => {
        const at = line.indexOf(":");
        return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
      }));
    } else body[field.name] = field.value;
  }
  return body;
}

export function showResult(form, text, isSuccess) {
  const output = form.querySelector("output");
  if (!output) return;
  output.textContent = text;
  output.className = isSuccess ? "fine" : "";
}

async function submit(form) {
  const body = form.dataset.api.startsWith("DELETE") ? undefined : read(form);
  try {
    const done = await call(form.dataset.api, body);
    if (form.dataset.then === "reload") location.reload();
    else if (form.dataset.then) location.assign(form.dataset.then.replace("{name}", encodeURIComponent(body?.name ?? "")));
    else showResult(form, Object.entries(done).map(([name, value]) => `${name} ${value}`).join(", "), true);
  } catch (error) {
    showResult(form, error.message, false);
  }
}

async function signIn(form) {
  try {
    await call("POST /api/session", { password: form.elements.password.value });
    location.reload();
  } catch (error) {
    showResult(form, error.message, false);
  }
}

function isoTime(text) {
  return new Date(text).toISOString();
}

function planRow(move) {
  const row = document.createElement("tr");
  for (const name of ["topic", "partition", "current", "new", "change", "lag"]) {
    const cell = document.createElement("td");
    cell.textContent = move[name] === null ? "–" : String(move[name]);
    if (name !== "topic") cell.className = "number";
    row.append(cell);
  }
  return row;
}

async function reset(form, isDry) {
  const { kind, number, time, topic } = form.elements;
  const to = kind.value === "time" ? "time:" + isoTime(time.value)
    : kind.value === "offset" || kind.value === "shift" ? kind.value + ":" + number.value : kind.value;
  try {
    const body = { to, dry_run: isDry };
    if (topic.value) body.topic = topic.value;
    const done = await call(`POST /api/groups/${form.dataset.reset}/reset`, body);
    const plan = form.querySelector("#plan");
    plan.hidden = false;
    plan.querySelector("tbody").replaceChildren(...done.moves.map(planRow));
    form.elements.do.disabled = !isDry || !done.moves.length;
    const partitions = done.moves.length === 1 ? "1 partition" : `${done.moves.length} partitions`;
    showResult(form, isDry ? `Offsets of ${partitions} will be reset.` : `Offsets of ${partitions} were reset.`, true);
  } catch (error) {
    showResult(form, error.message, false);
  }
}

function showFieldsFor(form, select) {
  for (const label of form.querySelectorAll("[data-for]")) label.hidden = !label.dataset.for.split(" ").includes(select.value);
}

export function linkFields(form, select) {
  select.addEventListener("change", () => showFieldsFor(form, select));
  showFieldsFor(form, select);
}

export function startForms() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.opens) document.getElementById(button.dataset.opens).showModal();
    if ("close" in button.dataset) button.closest("dialog").close();
    if (button.dataset.act) {
      button.disabled = true;
      try { await call(button.dataset.act); } catch (error) { button.title = error.message; }
    }
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.api) { event.preventDefault(); submit(form); }
    else if ("signIn" in form.dataset) { event.preventDefault(); signIn(form); }
    else if (form.dataset.reset) { event.preventDefault(); reset(form, event.submitter?.name !== "do"); }
  });
  for (const form of document.querySelectorAll("form[data-reset]")) {
    linkFields(form, form.elements.kind);
    form.addEventListener("input", () => { form.elements.do.disabled = true; });
  }
  const operator = document.getElementById("operator");
  operator.addEventListener("click", async () => {
    if (operator.dataset.isOperator === "yes") { await call("DELETE /api/session"); location.reload(); }
    else document.getElementById("sign-in").showModal();
  });
}

async function redriveLetters(button) {
  const ids = [...document.querySelectorAll("input[name=letter]:checked")].map((box) => box.value);
  const status = document.getElementById("letters-text");
  if (!ids.length) { status.textContent = "Select dead letters first."; return; }
  try {
    await call(`POST /api/tasks/${button.dataset.letters}/redrive`, { ids, drop: "drop" in button.dataset });
    location.reload();
  } catch (error) {
    status.textContent = error.message;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-letters]");
  if (button) redriveLetters(button);
  if (event.target.id === "all-letters") {
    for (const box of document.querySelectorAll("input[name=letter]")) box.checked = event.target.checked;
  }
});
