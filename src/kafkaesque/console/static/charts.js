// Charts by uPlot: the history is loaded once, then each sample adds a point. Events are marked.

const LINES = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5"];
const WINDOWS = [["10 min", 600], ["1 h", 3600], ["6 h", 21600]];
const LEVELS = { bad: "--bad", warn: "--warn", good: "--good", info: "--info" };

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function label(series) {
  const name = series.split("/").pop();
  return { rate: "records/s", lag: "lag", lag_s: "seconds" }[name] || name.replaceAll("_", " ");
}

function scaled(value, base, units) {
  let index = 0;
  while (Math.abs(value) >= base && index < units.length - 1) { value /= base; index += 1; }
  const digits = value === Math.round(value) ? 0 : Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
  return value.toFixed(digits) + units[index];
}

export function format(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "B/s") return scaled(value, 1024, [" B/s", " KiB/s", " MiB/s", " GiB/s"]);
  if (unit === "ms") return scaled(value, 1000, [" ms", " s"]);
  if (unit === "s") return scaled(value, 1e9, [" s", " s"]);
  return scaled(value, 1000, ["", "k", "M", "G"]) + (unit === "/s" ? "/s" : "");
}

class Chart {
  constructor(container) {
    this.container = container;
    this.names = container.dataset.series ? container.dataset.series.split(",") : [];
    this.unit = container.dataset.unit || "";
    this.title = container.getAttribute("aria-label") || "";
    this.window = 600;
    this.rows = [];
    this.marks = [];
    this.plot = null;
    if (this.names.length) this.addWindows();
  }

  addWindows() {
    const select = document.createElement("select");
    select.setAttribute("aria-label", "Time range");
    select.className = "window";
    for (const [text, seconds] of WINDOWS) select.add(new Option(text, seconds));
    select.addEventListener("change", () => { this.window = Number(select.value); this.load(); });
    this.container.parentElement.querySelector("figcaption").append(select);
  }

  async load() {
    const query = new URLSearchParams({ series: this.names.join(","), window: this.window });
    const response = await fetch("/api/history?" + query);
    if (!response.ok) return;
    const history = await response.json();
    this.setSeries(this.names.map((name) => [label(name), history.series[name] || []]), history.marks);
  }

  setSeries(series, marks) {
    const times = new Map();
    series.forEach(([, points], column) => {
      for (const [at, value] of points) {
        if (!times.has(at)) times.set(at, new Array(series.length).fill(null));
        times.get(at)[column] = value;
      }
    });
    this.labels = series.map(([label]) => label);
    this.rows = [...times.entries()].sort((a, b) => a[0] - b[0]);
    this.marks = marks;
    this.draw(true);
  }

  add(at, values, marks) {
    if (this.window > 600 || !this.rows) return;
    const row = this.names.map((name) => values[name] ?? null);
    const slot = Math.floor(at);
    if (this.rows.length && this.rows[this.rows.length - 1][0] >= slot) this.rows.pop();
    this.rows.push([slot, row]);
    this.rows = this.rows.filter(([time]) => time >= slot - this.window);
    this.marks = [...this.marks, ...marks].filter((mark, index, all) =>
      mark.at_s >= slot - this.window && all.findIndex((other) => other.at_s === mark.at_s && other.text === mark.text) === index);
    this.draw(false);
  }

  data() {
    const columns = [this.rows.map(([time]) => time)];
    (this.labels || this.names).forEach((_, column) => columns.push(this.rows.map(([, row]) => row[column])));
    return columns;
  }

  draw(isNew) {
    if (isNew && this.plot) { this.plot.destroy(); this.plot = null; }
    if (!this.plot) this.plot = this.make();
    else this.plot.setData(this.data());
  }

  range() {
    const last = this.rows.length ? this.rows[this.rows.length - 1][0] : Date.now() / 1000;
    if (this.names.length) return [last - this.window, last];
    return this.rows.length > 1 ? [this.rows[0][0], last] : [last - 3600, last];
  }

  make() {
    const labels = this.labels || this.names;
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const series = labels.map((label, index) => ({
      label,
      stroke: color(LINES[index % LINES.length]),
      width: 1.6,
      fill: labels.length === 1 ? color(LINES[0]) + "22" : undefined,
      points: { show: !this.names.length, size: 5 },
      spanGaps: true,
      value: (_plot, value) => format(value, this.unit),
    }));
    return new uPlot({
      width: this.container.clientWidth,
      height: this.container.clientHeight - 26,
      cursor: { drag: { x: false, y: false }, y: false },
      legend: { live: true },
      scales: { x: { range: () => this.range() }, y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.15 : 1] } },
      axes: [{ ...axis, values: (_plot, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString([], { hour12: false, hour: "2-digit", minute: "2-digit" })), space: 70 }, { ...axis, size: 62, values: (_plot, ticks) => ticks.map((tick) => format(tick, this.unit)) }],
      series: [{ label: "time", value: (_plot, value) => value === null ? "–" : new Date(value * 1000).toLocaleTimeString([], { hour12: false }) }, ...series],
      hooks: { draw: [(plot) => this.drawMarks(plot)] },
    }, this.data(), this.container);
  }

  drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.setLineDash([4, 4]);
    ctx.font = "11px system-ui";
    ctx.textAlign = "left";
    let lastEnd = -1e9;
    const seen = [];
    for (const mark of this.marks) {
      const x = plot.valToPos(mark.at_s, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      seen.push(mark.text);
      ctx.strokeStyle = ctx.fillStyle = color(LEVELS[mark.level] || "--soft");
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const text = mark.text.length > 34 ? mark.text.slice(0, 33) + "…" : mark.text;
      const width = ctx.measureText(text).width;
      const start = Math.min(x + 4, bbox.left + bbox.width - width);
      if (start > lastEnd) {
        ctx.fillText(text, start, bbox.top + 11);
        lastEnd = start + width + 8;
      }
    }
    ctx.restore();
    // Screen readers cannot read a canvas, so the label lists the marks.
    this.container.setAttribute("aria-label", [this.title, ...seen.slice(-5)].join("; "));
  }

  resize() {
    if (this.plot) this.plot.setSize({ width: this.container.clientWidth, height: this.container.clientHeight - 26 });
  }
}

async function drawTrends(chart) {
  const response = await fetch("/api/trends");
  if (!response.ok) return;
  const { over_time: tags } = await response.json();
  chart.setSeries(Object.entries(tags).map(([tag, points]) => ["#" + tag, points]), []);
}

export function startCharts() {
  const charts = [...document.querySelectorAll(".plot[data-series]")].map((container) => new Chart(container));
  const trends = [...document.querySelectorAll(".plot[data-trends]")].map((container) => new Chart(container));
  const reload = () => {
    for (const chart of charts) chart.load();
    for (const chart of trends) drawTrends(chart);
  };
  addEventListener("resize", () => [...charts, ...trends].forEach((chart) => chart.resize()));
  document.addEventListener("themechange", () => [...charts, ...trends].forEach((chart) => chart.plot && chart.draw(true)));
  if (document.readyState === "complete") reload();
  else addEventListener("load", reload);
  if (trends.length) setInterval(() => { if (!document.hidden) trends.forEach(drawTrends); }, 5000);
  return {
    series: [...new Set(charts.flatMap((chart) => chart.names))],
    reload,
    add(sample) {
      for (const chart of charts) if (chart.plot) chart.add(sample.at_s, sample.values, sample.marks);
    },
  };
}
