// The message browser. Contents of records are set as text, so that markup in them is not interpreted.

import { call, linkFields, showResult } from "./forms.js";

const ROWS_MAX = 1000;
const browser = document.querySelector(".browser");
const topic = browser.dataset.topic;
const form = document.getElementById("search");
const rows = document.getElementById("records");
const bar = document.getElementById("progress");
const progressText = document.getElementById("progress-text");
const followButton = document.getElementById("follow");
const stopButton = document.getElementById("stop");
let source = null;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function parameters() {
  const fields = form.elements;
  const query = new URLSearchParams();
  const start = fields.start.value;
  if (start === "offset" || start === "last") query.set("from", `${start}:${fields.number.value || 0}`);
  else if (start === "time") { if (fields.time.value) query.set("from", "time:" + new Date(fields.time.value).toISOString()); }
  else query.set("from", start);
  for (const name of ["partition", "key", "filter", "decode", "limit"]) {
    const value = fields[name].value.trim();
    if (value) query.set(name, value);
  }
  return query;
}

function text(shown) {
  if (shown.kind === "null") return "null";
  return typeof shown.data === "string" ? shown.data : JSON.stringify(shown.data);
}

function pretty(shown) {
  const whole = typeof shown.data === "string" || shown.data === null ? text(shown) : JSON.stringify(shown.data, null, 2);
  return shown.cut ? `${whole}\n… and ${shown.cut} more characters (export the record to see them)` : whole;
}

function cell(row, className, ...children) {
  const made = element("td", className);
  made.append(...children);
  row.append(made);
}

function recordRow(record) {
  const row = element("tr", "record");
  row.tabIndex = 0;
  row.setAttribute("aria-expanded", "false");
  const moment = new Date(record.timestamp_ms);
  const time = element("time", "", record.timestamp_ms < 0 ? "–" : moment.toLocaleTimeString([], { hour12: false }) + "." + String(moment.getMilliseconds()).padStart(3, "0"));
  if (record.timestamp_ms >= 0) time.title = moment.toISOString();
  cell(row, "", time);
  cell(row, "number", String(record.partition));
  cell(row, "number", record.offset.toLocaleString("en"));
  cell(row, "", element("code", "", text(record.key).slice(0, 80)));
  const value = element("code", "", text(record.value).slice(0, 400));
  cell(row, "value", value);
  cell(row, "number", record.size_bytes.toLocaleString("en"), element("span", "kind", record.value.kind));
  const toggle = () => toggleDetail(row, record);
  row.addEventListener("click", (event) => { if (!String(getSelection())) toggle(event); });
  row.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); } });
  return row;
}

function toggleDetail(row, record) {
  if (row.classList.toggle("open")) {
    const detail = element("tr", "detail");
    const content = element("td");
    content.colSpan = 6;
    if (record.key.kind !== "null") content.append(element("strong", "", `Key (${record.key.kind})`), element("pre", "", pretty(record.key)));
    const schema = record.value.schema_id === undefined ? "" : `, schema ${record.value.schema_id}`;
    content.append(element("strong", "", `Value (${record.value.kind}${schema})`), element("pre", "", pretty(record.value)));
    if (record.headers.length) content.append(element("strong", "", "Headers"), element("pre", "", record.headers.map(([name, value]) => `${name}: ${value}`).join("\n")));
    detail.append(content);
    row.after(detail);
  } else {
    row.nextElementSibling.remove();
  }
  row.setAttribute("aria-expanded", String(row.classList.contains("open")));
}

function showProgress(progress, isFollowing) {
  const scanned = progress.scanned.toLocaleString("en");
  const matched = progress.matched.toLocaleString("en");
  const rate = progress.seconds > 0.2 ? `, ${Math.round(progress.scanned / progress.seconds).toLocaleString("en")} per second` : "";
  bar.hidden = isFollowing || progress.is_done;
  bar.max = Math.max(1, progress.total);
  bar.value = progress.scanned;
  progressText.textContent = `${matched} matches in ${scanned} records${isFollowing ? " since you started following" : rate}` + (progress.is_done ? `: ${progress.note}` : "");
}

function stop() {
  if (source) source.close();
  source = null;
  stopButton.hidden = true;
  followButton.setAttribute("aria-pressed", "false");
}

function run(isFollowing) {
  stop();
  const query = parameters();
  for (const kind of ["ndjson", "csv"]) {
    const wanted = new URLSearchParams(query);
    wanted.set("format", kind);
    wanted.set("limit", "10000000");
    document.getElementById("export-" + kind).href = `/api/topics/${topic}/export?${wanted}`;
  }
  if (isFollowing) query.set("follow", "1");
  rows.replaceChildren();
  progressText.textContent = isFollowing ? "Waiting for new records …" : "Reading …";
  stopButton.hidden = false;
  followButton.setAttribute("aria-pressed", String(isFollowing));
  source = new EventSource(`/api/topics/${topic}/search?${query}`);
  source.addEventListener("records", (event) => {
    const made = JSON.parse(event.data).map(recordRow);
    if (isFollowing) { rows.prepend(...made.reverse()); while (rows.childElementCount > ROWS_MAX) rows.lastElementChild.remove(); }
    else rows.append(...made);
  });
  source.addEventListener("progress", (event) => showProgress(JSON.parse(event.data), isFollowing));
  source.addEventListener("done", (event) => { showProgress(JSON.parse(event.data), false); stop(); });
  source.addEventListener("failed", (event) => { progressText.textContent = JSON.parse(event.data).error; stop(); });
  source.onerror = () => explain(query);
}

// An EventSource does not report why it failed, so the same request is repeated by fetch.
async function explain(query) {
  stop();
  query.set("limit", "1");
  query.delete("follow");
  const response = await fetch(`/api/topics/${topic}/messages?${query}`);
  const document = await response.json().catch(() => ({}));
  progressText.textContent = document.error || "The connection was lost. Search again.";
}

function savedFilters() {
  try { return JSON.parse(localStorage.getItem("filters") || "[]"); } catch (error) { return []; }
}

function showSaved() {
  document.getElementById("saved-filters").replaceChildren(...savedFilters().map((filter) => { const option = element("option"); option.value = filter; return option; }));
}

function saveFilter() {
  const filter = form.elements.filter.value.trim();
  if (!filter) return;
  try { localStorage.setItem("filters", JSON.stringify([filter, ...savedFilters().filter((other) => other !== filter)].slice(0, 20))); } catch (error) { /* the filter is not saved */ }
  showSaved();
}

async function drawHistogram() {
  const response = await fetch(`/api/topics/${topic}/histogram`);
  if (!response.ok) return;
  const { buckets } = await response.json();
  const svgName = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(svgName, "svg");
  svg.setAttribute("viewBox", `0 0 ${buckets.length * 10} 60`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "group");
  svg.setAttribute("aria-label", "Records per minute over the last hour");
  const most = Math.max(1, ...buckets.map((bucket) => bucket.count));
  buckets.forEach((bucket, index) => {
    const height = bucket.count ? Math.max(2, (bucket.count / most) * 58) : 0;
    const rect = document.createElementNS(svgName, "rect");
    rect.setAttribute("x", index * 10 + 1);
    rect.setAttribute("y", 60 - height);
    rect.setAttribute("width", 8);
    rect.setAttribute("height", height);
    const title = document.createElementNS(svgName, "title");
    const from = new Date(bucket.from_ms);
    title.textContent = `${from.toLocaleTimeString([], { hour12: false })}: ${bucket.count.toLocaleString("en")} records`;
    rect.append(title);
    rect.addEventListener("click", () => startAt(from));
    svg.append(rect);
  });
  document.getElementById("histogram").replaceChildren(svg);
  const total = buckets.reduce((sum, bucket) => sum + bucket.count, 0);
  document.getElementById("histogram-text").textContent = `${total.toLocaleString("en")} in the last hour; click a bar to start there`;
}

function startAt(moment) {
  const local = new Date(moment.getTime() - moment.getTimezoneOffset() * 60000);
  form.elements.start.value = "time";
  form.elements.time.value = local.toISOString().slice(0, 19);
  form.elements.start.dispatchEvent(new Event("change"));
  run(false);
}

function startReplay() {
  const replay = document.querySelector("form[data-replay]");
  if (!replay) return;
  replay.addEventListener("submit", async (event) => {
    event.preventDefault();
    const isDry = event.submitter?.name !== "do";
    const query = Object.fromEntries([...parameters()].filter(([name]) => name !== "limit"));
    if (query.from === "newest") query.from = "oldest";
    try {
      const done = await call(`POST /api/topics/${topic}/replay`, { to: replay.elements.to.value, query, dry_run: isDry });
      showResult(replay, isDry ? `${done.would_copy.toLocaleString("en")} records will be copied.` : `${done.copied.toLocaleString("en")} records were copied.`, true);
      replay.elements.do.disabled = !isDry || !done.would_copy;
    } catch (error) {
      showResult(replay, error.message, false);
    }
  });
  replay.elements.to.addEventListener("input", () => { replay.elements.do.disabled = true; });
}

form.addEventListener("submit", (event) => { event.preventDefault(); saveFilter(); run(false); });
followButton.addEventListener("click", () => { if (followButton.getAttribute("aria-pressed") === "true") stop(); else run(true); });
stopButton.addEventListener("click", () => { stop(); bar.hidden = true; progressText.textContent += " · stopped"; });
addEventListener("pagehide", stop);
linkFields(form, form.elements.start);
showSaved();
startReplay();
drawHistogram();
run(false);
