"use strict";
const drawings = [];
const root = document.documentElement, toggle = document.getElementById("theme");
const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
function show(theme) {
  root.dataset.theme = theme;
  toggle.textContent = theme === "dark" ? "Light" : "Dark";
  for (const draw of drawings) draw();
}

show(stored() || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
toggle.addEventListener("click", () => {
  const theme = root.dataset.theme === "dark" ? "light" : "dark";
  show(theme);
  try { localStorage.setItem("theme", theme); } catch { /* a page from a file may have no storage */ }
});

const table = document.getElementById("rows");
function compare(a, b) {
  const x = Number(a), y = Number(b);
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
}
function sort(index, heading) {
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = row => row.cells[index].dataset.value;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => {
    const x = value(a), y = value(b);
    if (x === "" || y === "") return (x === "") - (y === ""); // nothing measured: last, either way
    return down ? compare(y, x) : compare(x, y);
  });
  table.tBodies[0].append(...rows);
}
if (table) [...table.tHead.rows[0].cells].forEach((heading, index) =>
  heading.querySelector("button").addEventListener("click", () => sort(index, heading)));

const search = document.getElementById("search"), picks = [...document.querySelectorAll(".filters select")];
function filter() {
  const heads = [...table.tHead.rows[0].cells].map(head => head.dataset.column);
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    const fits = words.every(word => text.includes(word)) && picks.every(pick =>
      !pick.value || row.cells[heads.indexOf(pick.dataset.column)].textContent === pick.value);
    row.hidden = !fits;
    shown += fits;
  }
  document.getElementById("count").textContent = `${shown} of ${table.tBodies[0].rows.length} rows`;
}
if (table) {
  search.addEventListener("input", filter);
  for (const pick of picks) pick.addEventListener("change", filter);
}

const COLOURS = ["#2a78b5", "#d9711a", "#2f9e44", "#c92a2a", "#8558b8", "#8d6e63", "#d6569f", "#868e96", "#a5a11a", "#1299a8"];
const MARKS = ["circle", "rect", "triangle", "rectRot", "star", "crossRot"];
const held = document.getElementById("data"), data = held ? JSON.parse(held.textContent) : {};
const narrow = () => innerWidth < 640;
function line(name, number, points, more) {
  const colour = COLOURS[number % COLOURS.length], style = MARKS[Math.floor(number / COLOURS.length) % MARKS.length];
  return { label: name, data: points, borderColor: colour, borderWidth: 1.5, pointStyle: style, tension: 0,
    backgroundColor: colour, pointRadius: points.length > 60 ? 0 : 4, pointHitRadius: 8,
    pointBackgroundColor: points.map(point => point.outlier ? "transparent" : colour),
    ...more };
}
const middle = values => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
function againstLayers(group, quantity) {
  const sets = [];
  group.lines.forEach((one, number) => {
    const points = one.points.filter(point => point[quantity] !== null)
      .map(point => ({ x: point.layers, y: point[quantity], ...point }));
    if (!points.length) return;
    // The line goes through the median of each depth, without outliers; the points are all there.
    const depths = [...new Set(points.map(point => point.x))];
    const path = depths.map(x => {
      const here = points.filter(point => point.x === x), good = here.filter(point => !point.outlier);
      return { x, y: middle((good.length ? good : here).map(point => point.y)), row: here[0].row };
    });
    sets.push(line(one.name, number, points, { showLine: false }));
    sets.push(line(one.name, number, path, { pointRadius: 0, pointHitRadius: 0, isPath: true }));
    const expected = depths.map(x => points.find(point => point.x === x && point.predicted !== null))
      .filter(Boolean).map(point => ({ ...point, y: point.predicted, said: "predicted" }));
    if (quantity === "memory" && expected.length)
      sets.push(line(one.name, number, expected, { borderDash: [4, 4], pointStyle: "crossRot", isPath: true, pointRadius: 3 }));
  });
  return sets;
}
const KINDS = {
  throughput: { from: "layers", sets: group => againstLayers(group, "tokens"), x: "layers", y: `real tokens/s per ${data.rank}` },
  memory: { from: "layers", sets: group => againstLayers(group, "memory"), x: "layers", y: `GB per ${data.rank}` },
  losses: { from: "losses", x: "step", y: "loss", sets: group => group.lines.map((one, number) =>
    line(one.name, number, one.points.map(([x, y]) => ({ x, y })))) },
};
function options(kind, colours, names = 0) {
  const axis = title => ({ title: { display: true, text: title, color: colours.ink }, ticks: { color: colours.ink },
    grid: { color: colours.rule } });
  return { responsive: true, maintainAspectRatio: false, animation: false, color: colours.ink,
    interaction: { mode: "nearest", intersect: true },
    onClick: (event, found, chart) => {
      const point = found.length && chart.data.datasets[found[0].datasetIndex].data[found[0].index];
      const row = found.length ? chart.rowsOf?.[found[0].index] ?? point.row : undefined;
      if (row !== undefined) location.hash = `log-${row}`;
    },
    scales: { x: { type: "linear", ...axis(kind.x) }, y: { beginAtZero: kind.from === "layers", ...axis(kind.y) } },
    plugins: {
      legend: { position: narrow() || names > 16 ? "bottom" : "right", labels: { color: colours.ink, usePointStyle: true, boxWidth: 7, boxHeight: 7,
        font: { size: narrow() ? 10 : 12 }, filter: (item, all) => !all.datasets[item.datasetIndex].isPath },
        onClick: (_, item, legend) => {
          const sets = legend.chart.data.datasets, on = legend.chart.isDatasetVisible(item.datasetIndex);
          sets.forEach((set, n) => { if (set.label === item.text) legend.chart.setDatasetVisibility(n, !on); });
          legend.chart.update();
        } },
      tooltip: { callbacks: { label: item => {
        const point = item.raw, said = point.said ? ` ${point.said}` : "";
        const words = [`${item.dataset.label}${said}: ${Number(item.parsed.y.toPrecision(5)).toLocaleString("en")}`];
        if (point.processes) words.push(`${point.processes} process${point.processes === 1 ? "" : "es"}`);
        return point.outlier ? [...words, point.outlier] : words;
      } } },
    } };
}
function phases(group, colours) {
  const base = options({ from: "phases", x: "ms per step", y: "" }, colours);
  base.indexAxis = "y";
  base.scales = { x: { ...base.scales.x, stacked: true, beginAtZero: true },
    y: { type: "category", stacked: true, ticks: { color: colours.ink, autoSkip: false, font: { size: narrow() ? 9 : 11 },
      callback(value) { const text = this.getLabelForValue(value), most = narrow() ? 18 : 60;
        return text.length > most ? `${text.slice(0, most - 1)}…` : text; } }, grid: { display: false } } };
  base.plugins.legend = { position: "top", labels: { color: colours.ink } };
  base.plugins.tooltip = {};
  return { type: "bar", options: base, data: { labels: group.bars.map(bar => bar.name),
    datasets: ["forward", "backward", "optimizer"].map((name, number) =>
      ({ label: name, backgroundColor: COLOURS[number], data: group.bars.map(bar => bar[name]) })) } };
}
const charts = {};
function draw(key) {
  const pick = document.getElementById(`pick-${key}`), canvas = document.getElementById(`chart-${key}`);
  const style = getComputedStyle(root), colours = { ink: style.getPropertyValue("--ink"), rule: style.getPropertyValue("--rule") };
  charts[key]?.destroy();
  const group = data[key === "phases" ? "phases" : KINDS[key].from][Number(pick.value)];
  if (key === "phases") {
    document.getElementById("box-phases").style.height = `${6 + 1.6 * group.bars.length}rem`;
    charts[key] = new Chart(canvas, phases(group, colours));
    charts[key].rowsOf = group.bars.map(bar => bar.row);
  } else {
    const kind = KINDS[key];
    const shown = options(kind, colours, group.lines.length);
    if (kind.from === "layers") { // ticks where something was measured
      const depths = [...new Set(group.lines.flatMap(one => one.points.map(point => point.layers)))].sort((a, b) => a - b);
      shown.scales.x.afterBuildTicks = axis => { axis.ticks = depths.map(value => ({ value })); };
    }
    charts[key] = new Chart(canvas, { type: "line", data: { datasets: kind.sets(group) }, options: shown });
  }
}
for (const key of ["throughput", "memory", "phases", "losses"]) {
  const pick = document.getElementById(`pick-${key}`);
  if (!pick) continue;
  pick.addEventListener("change", () => draw(key));
  drawings.push(() => draw(key));
  draw(key);
}

function reveal() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") target.open = true;
}
addEventListener("hashchange", reveal);
reveal();
