// The console's pages: live updates, charts, keyboard shortcuts and the operator's forms. No framework.
// Data never becomes markup: HTML from the server is escaped by its templates, all else is set as text.

import { startCharts } from "./charts.js";
import { startForms } from "./forms.js";
import { startKeys } from "./keys.js";
import { morph } from "./morph.js";

const indicator = document.getElementById("connection");
let source = null;
let isPaused = false;

export function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.getAttribute("datetime"));
    if (!Number.isNaN(moment.getTime())) {
      time.textContent = moment.toLocaleTimeString([], { hour12: false });
      time.title = moment.toLocaleString();
    }
  }
}

function showConnection(state) {
  indicator.className = "connection " + state;
  indicator.textContent = state === "" ? "live" : state === "off" ? "reconnecting" : "paused";
}

function applyParts(parts) {
  for (const [id, html] of Object.entries(parts)) {
    const part = document.getElementById(id);
    if (!part) continue;
    const next = document.createElement("template");
    next.innerHTML = html;
    localTimes(next.content);
    morph(part, next.content);
  }
}

function connect() {
  if (source || isPaused || document.hidden) return;
  const query = new URLSearchParams(location.search);
  query.set("_page", decodeURIComponent(location.pathname));
  query.set("_series", charts.series.join(","));
  source = new EventSource("/live?" + query);
  source.onopen = () => showConnection("");
  source.onerror = () => showConnection("off");
  source.addEventListener("parts", (event) => applyParts(JSON.parse(event.data)));
  source.addEventListener("points", (event) => charts.add(JSON.parse(event.data)));
  source.addEventListener("gone", () => location.reload());
}

function disconnect() {
  if (source) source.close();
  source = null;
}

// Browsers allow six connections per host, so only the visible page keeps one.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) disconnect();
  else { charts.reload(); connect(); }
});
addEventListener("pagehide", disconnect);

const charts = startCharts();
localTimes(document);
startForms();
startKeys({
  togglePause() {
    isPaused = !isPaused;
    if (isPaused) { disconnect(); showConnection("paused"); } else { charts.reload(); connect(); }
  },
});
connect();
