const greatest = numbers => numbers.reduce((a, b) => Math.max(a, b), 0);

// What a step's time was spent on. Each has a pattern besides its colour.
const kParts = [
  { key: "compute_ns", text: "compute", pattern: "" },
  { key: "communication_ns", text: "communication", pattern: "M0 8L8 0M-2 2L2 -2M6 10L10 6" },
  { key: "copies_ns", text: "copies", pattern: "M0 4H8M4 0V8" },
  { key: "loading_ns", text: "loading", pattern: "M2 2h.01M6 6h.01" },
  { key: "optimizer_ns", text: "optimizer", pattern: "M2 0V8M6 0V8" },
  { key: "compiling_ns", text: "compiling", pattern: "M0 4L4 0L8 4M0 8L4 4L8 8" },
  { key: "collecting_ns", text: "garbage collection", pattern: "M2 2L6 6M6 2L2 6" },
  { key: "waiting_ns", text: "waiting", pattern: "M4 4h.01" },
  { key: "operators_ns", text: "operators on the CPU", pattern: "M0 4H8" },
  { key: "host_ns", text: "Python", pattern: "M0 2H8M0 6H8" },
  { key: "idle_ns", text: "not recorded", pattern: "M0 0L8 8M-2 6L2 10M6 -2L10 2" },
];
const patterns = () => make("defs", {}, ...kParts.map(part => make("pattern", { id: "part-" + part.key, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
  make("rect", { class: "fill " + part.key, width: 8, height: 8 }), make("path", { class: "ink", d: part.pattern }))));

// About `count` round numbers from 0 to `most`.
function ticks(most, count) {
  if (!(most > 0)) return [0];
  const rough = most / count, power = 10 ** Math.floor(Math.log10(rough));
  const each = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough);
  return Array.from({ length: Math.floor(most / each) + 1 }, (_, i) => i * each);
}
const viewWidth = () => Math.max(240, byId("view").clientWidth - (innerWidth < 600 ? 24 : 40));  // without its padding

const kMostPanels = 8;
function stepPanel(who, rows, most, width) {
  const left = 64, right = 8, top = 18, height = 120, foot = 32;
  const longest = bar => bar.reduce((a, b) => b.ns > a.ns ? b : a);
  const room = width - left - right, bars = [], count = Math.max(1, Math.ceil(rows.length / Math.max(20, Math.floor(room / 3))));
  for (let i = 0; i < rows.length; i += count) bars.push(rows.slice(i, i + count));
  const each = Math.min(40, room / bars.length), gap = each > 4 ? 1 : 0, y = ns => top + height * (1 - Math.min(most, ns) / (most || 1));
  width = left + right + Math.max(bars.length * each, Math.min(room, 160));
  const says = (bar, row) => "step " + bar[0].step + (bar.length > 1 ? " to " + bar[bar.length - 1].step : "") + " of " + who + (bar.length > 1 ? ": at most " : ": ") + time(row.ns) +
    kParts.filter(part => row[part.key]).map(part => ", " + part.text + " " + time(row[part.key])).join("") + (row.outlier ? ", an outlier" : "");
  const draw = (bar, i) => {
    const row = longest(bar), shape = { x: (left + i * each).toFixed(2), width: Math.max(0.6, each - gap).toFixed(2) };
    let from = 0;
    const known = kParts.filter(part => row[part.key] > 0).map(part => {
      const to = Math.min(row.ns, from + row[part.key]);
      const rect = make("rect", { ...shape, y: y(to).toFixed(2), height: (y(from) - y(to)).toFixed(2), fill: "url(#part-" + part.key + ")" });
      from = to;
      return rect;
    });
    return make("g", { class: "step" }, make("title", {}, says(bar, row)), make("rect", { ...shape, class: "whole", y: y(row.ns).toFixed(2), height: (y(0) - y(row.ns)).toFixed(2) }), ...known,
      ...(row.ns > most ? [make("line", { class: "break", x1: shape.x, x2: +shape.x + +shape.width, y1: top + 12, y2: top + 6 }),
        ...(each < 6 ? [] : [make("text", { x: shape.x, y: top - 5 }, roundTime(row.ns))])] : []));
  };
  const marks = ticks(most, 4), labelled = Math.max(1, Math.ceil(bars.length / Math.max(2, Math.floor(each * bars.length / 70))));
  return make("figure", { class: "panel" }, make("figcaption", {}, who),
    make("svg", { width, height: top + height + foot, role: "img", class: "steps", "aria-label": who + ": " + rows.length + " steps, at most " + time(greatest(rows.map(row => row.ns))) }, patterns(),
      ...marks.flatMap(ns => [make("line", { class: "grid", x1: left, x2: width - right, y1: y(ns), y2: y(ns) }), make("text", { x: left - 6, y: y(ns) + 4, "text-anchor": "end" }, ns ? roundTime(ns) : "0")]),
      ...bars.map(draw),
      ...bars.flatMap((bar, i) => i % labelled ? [] : [make("text", { x: left + (i + 0.5) * each, y: top + height + 14, "text-anchor": "middle" }, String(bar[0].step))]),
      make("text", { x: left, y: top + height + 28 }, "step" + (count > 1 ? "; a bar is the longest of " + count : ""))));
}
// The longest step that a chart is to show whole. First steps load and choose for the others: one that is far longer would leave no height for these,
// so its bar is cut.
function highest(report) {
  let all = 0, others = 0;
  const seen = new Set();
  for (const row of tables("step_times", report).flatMap(t => t.rows)) {
    all = Math.max(all, row.ns);
    if (seen.has(processOf(row))) others = Math.max(others, row.ns);
    seen.add(processOf(row));
  }
  return others && all > 2 * others ? 1.1 * others : all;
}
function stepChart(report = data.report, most = highest(report), width = viewWidth()) {
  const rows = tables("step_times", report).flatMap(t => t.rows);
  if (!rows.length) return null;
  const roles = roleOf(report), by = new Map();
  for (const row of rows) {
    const process = processOf(row);
    if (!by.has(process)) by.set(process, []);
    by.get(process).push(row);
  }
  const used = kParts.filter(part => rows.some(row => row[part.key] > 0));
  const shown = [...by].map(([process, own]) => [roles.get(process) || "process " + process, own]).filter(([who]) => matches(who));
  if (!shown.length) return null;
  const panels = shown.slice(0, kMostPanels).map(([who, own]) => stepPanel(who, own, most, width));
  return make("section", {}, make("h2", {}, "Time per step"),
    make("ul", { class: "legend" }, ...used.map(part => make("li", {}, make("svg", { width: 14, height: 14, "aria-hidden": "true" }, make("rect", { width: 14, height: 14, fill: "url(#part-" + part.key + ")" })), part.text))),
    make("div", { class: "panels" }, ...panels), shown.length > kMostPanels ? make("p", { class: "note" }, "The first " + kMostPanels + " of " + shown.length + " processes; the table below has all.") : null);
}
