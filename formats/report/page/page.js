"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const tables = name => data.report.tables.filter(t => t.name === name);
const state = { view: null, search: "", thread: 0, root: 0, sort: {} };

// Sets text only, so nothing from the data becomes markup.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "rect", "text", "title"].includes(tag);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else if (key === "style") e.style.cssText = value;
    else e.setAttribute(key, value);
  }
  for (const child of children) if (child !== null) e.append(child);
  return e;
}
function time(ns) {
  if (Math.abs(ns) < 1e3) return ns.toFixed(0) + " ns";
  if (Math.abs(ns) < 1e6) return (ns / 1e3).toFixed(1) + " us";
  if (Math.abs(ns) < 1e9) return (ns / 1e6).toFixed(2) + " ms";
  return (ns / 1e9).toFixed(3) + " s";
}
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; Math.abs(n) >= 1024 && i + 1 < units.length; ++i) n /= 1024;
  return n.toFixed(i ? 1 : 0) + " " + units[i];
}
function cell(value, unit) {
  if (value === null || value === undefined) return "-";
  if (unit === "ns") return time(value);
  if (unit === "bytes") return bytes(value);
  if (unit === "flops") return (value / 1e9).toFixed(3);  // under "GFLOPs"
  if (unit === "percent") return value.toFixed(1) + " %";
  return typeof value === "number" ? value.toLocaleString("en") : String(value);
}
const found = text => state.search !== "" && text.toLowerCase().includes(state.search);
const matches = text => state.search === "" || found(text);

const kRows = 500;
function tableView(table, id) {
  if (!table.rows.length) return null;
  const order = state.sort[id];
  let rows = table.rows.filter(row => matches(Object.values(row).filter(v => typeof v === "string").join(" ")));
  if (order) {
    const sign = order.up ? 1 : -1;
    rows = rows.slice().sort((a, b) => {
      const x = a[order.key], y = b[order.key];
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (x < y ? -1 : x > y ? 1 : 0);
    });
  }
  // Only columns with values; names first, so that a narrow window shows them.
  const hasShort = table.columns.some(c => c.key === "short_name");  // then the whole name is shown where one points
  const used = table.columns.filter(c => table.rows.some(r => r[c.key]) && !(hasShort && c.key === "name")).sort((a, b) => (b.unit === "text") - (a.unit === "text"));
  const kind = c => c.unit === "text" ? "text" : "number";
  const sortBy = c => () => {
    state.sort[id] = { key: c.key, up: order && order.key === c.key ? !order.up : c.unit === "text" };
    show();
    document.querySelector("[data-sort='" + id + " " + c.key + "']").focus();
  };
  const head = used.map(c => make("th", { class: kind(c), scope: "col",
    "aria-sort": order && order.key === c.key ? (order.up ? "ascending" : "descending") : "none" },
    make("button", { "data-sort": id + " " + c.key, onclick: sortBy(c) }, c.title || c.key)));
  const whole = (row, c) => cell(row[hasShort && c.key === "short_name" ? "name" : c.key], c.unit);
  const body = rows.slice(0, kRows).map(row => make("tr", {}, ...used.map(c => make("td", c.unit === "text" ? { class: "text", title: whole(row, c) } : {}, cell(row[c.key], c.unit)))));
  return make("section", {}, make("h2", {}, table.title),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body))),
    rows.length > kRows ? make("p", { class: "note" }, "the first " + kRows + " of " + rows.length + " rows; search to see others") : null,
    ...(table.remarks || []).map(remark => make("p", { class: "note" }, remark)));
}
const tablesView = name => tables(name).map((t, i) => tableView(t, name + i)).filter(e => e !== null);

const greatest = numbers => numbers.reduce((a, b) => Math.max(a, b), 0);
const kBars = 1000;  // about as many as there are pixels
function stepChart() {
  const rows = tables("step_times").flatMap(t => t.rows);
  if (!rows.length) return null;
  const roles = new Map(tables("processes").flatMap(t => t.rows).map(row => [row.pid, row.role]));
  const whose = row => "step " + row.step + " of " + (roles.get(row.pid) || "process " + row.pid);
  const together = Math.ceil(rows.length / kBars), bars = [];
  for (let i = 0; i < rows.length; i += together) bars.push(rows.slice(i, i + together));
  const longest = bars.map(bar => greatest(bar.map(row => row.ns)));
  const most = greatest(longest), width = 1000 / bars.length, height = ns => 150 * ns / (most || 1);
  const says = (bar, i) => whose(bar[0]) + (bar.length > 1 ? " to " + whose(bar[bar.length - 1]) + ": at most " : ": ") + time(longest[i]);
  return make("section", {}, make("h2", {}, "Time per step"),
    make("svg", { viewBox: "0 0 1000 180", role: "img", "aria-label": rows.length + " steps, at most " + time(most), class: "steps" },
      ...bars.map((bar, i) => make("rect", { class: "bar", x: i * width, width: Math.max(0.5, width - (width > 4 ? 1 : 0)), y: 170 - height(longest[i]), height: height(longest[i]) },
        make("title", {}, says(bar, i)))),
      make("text", { x: 6, y: 14 }, time(most))));
}
function memoryChart(line) {
  const most = greatest(line.bytes) || 1;
  let path = "", last = 0, draws = false;
  line.bytes.forEach((value, i) => {  // -1: as before; -2: not known
    if (value >= 0) last = value;
    if (value === -2) return draws = false;
    path += (draws ? "L" : "M") + (i * 1000 / (line.bytes.length - 1)).toFixed(1) + " " + (170 - 150 * last / most).toFixed(1);
    draws = true;
  });
  return make("section", {}, make("h2", {}, "Allocated: " + line.label),
    make("svg", { viewBox: "0 0 1000 180", role: "img", "aria-label": "at most " + bytes(most) + " in " + time(line.ns), class: "memory" },
      make("path", { class: "line", d: path }), make("text", { x: 6, y: 14 }, bytes(most)), make("text", { x: 994, y: 14, "text-anchor": "end" }, time(line.ns))));
}

// Modules as a tree by their paths; a root has no path.
function moduleTree() {
  const rows = tables("modules").flatMap(t => t.rows);
  if (!rows.length) return null;
  const top = { children: new Map(), row: null }, roots = rows.filter(row => !row.path);
  // A path does not name its root: with several models the paths are shown beside the roots.
  let root = top;
  if (roots.length === 1) top.children.set(roots[0].name, root = { children: new Map(), row: roots[0] });
  for (const row of rows) {
    if (row === root.row) continue;
    let at = root;
    for (const part of row.path ? row.path.split(".") : []) {
      if (!at.children.has(part)) at.children.set(part, { children: new Map(), row: null });
      at = at.children.get(part);
    }
    if (at === root || at.row) at.children.set(row.name, { children: new Map(), row });
    else at.row = row;
  }
  const total = n => n.row ? (n.row.forward_total_ns || 0) + (n.row.backward_total_ns || 0) : 0;
  const matching = (label, n) => matches(label + " " + (n.row ? n.row.name : "")) || [...n.children].some(([l, c]) => matching(l, c));
  const draw = (label, n, depth) => {
    const numbers = n.row ? "forward " + time(n.row.forward_total_ns || 0) + ", backward " + time(n.row.backward_total_ns || 0) + ", " + cell(n.row.calls) + " calls" : "";
    const line = [label + (n.row && n.row.name !== label ? "  " + n.row.name.replace(/^nn\.Module: /, "") : ""), make("span", { class: "num" }, numbers)];
    const inside = [...n.children].filter(([l, c]) => matching(l, c)).sort((a, b) => total(b[1]) - total(a[1]));
    if (!inside.length) return make("div", { class: "leaf" }, ...line);
    const details = make("details", {}, make("summary", {}, ...line), ...inside.map(([l, c]) => draw(l, c, depth + 1)));
    details.open = depth < 3 || state.search !== "";
    return details;
  };
  return make("section", { class: "modules" }, make("h2", {}, "Module tree"),
    ...[...top.children].filter(([l, c]) => matching(l, c)).sort((a, b) => total(b[1]) - total(a[1])).map(([l, c]) => draw(l, c, 0)));
}

function hue(name) {
  let hash = 0;
  for (const c of name) hash = (hash * 31 + c.codePointAt(0)) >>> 0;
  return name.startsWith("aten::") ? 200 + hash % 30 : name.startsWith("nn.Module") ? 95 + hash % 35 : 20 + hash % 35;
}
// A frame is [parent, name, total ns, own ns, calls].
function flameView() {
  if (!data.flame || !data.flame.threads.length)
    return [make("p", { class: "note" }, data.flame ? "No calls were recorded." : "A flame graph needs the raw records of a run (run --discard removes them).")];
  const { names, threads } = data.flame, { frames, label } = threads[state.thread];
  const children = frames.map(() => []);
  for (let i = 1; i < frames.length; ++i) children[frames[i][0]].push(i);
  const text = i => i ? names[frames[i][1]] : label;
  const all = frames[state.root][2] || 1, box = make("div", { class: "flame" });
  let deepest = 0;
  const zoom = i => () => { state.root = i; show(); (document.querySelector(".flame [data-frame='" + i + "']") || byId("view")).focus(); };
  const draw = (i, left, width, depth) => {
    if (width < 0.08) return;
    deepest = Math.max(deepest, depth);
    const says = text(i) + ", " + time(frames[i][2]) + ", own " + time(frames[i][3]) + ", " + cell(frames[i][4]) + " calls";
    box.append(make("button", { "data-frame": i, title: says, "aria-label": says, class: found(text(i)) ? "hit" : "", onclick: zoom(i),
      onfocus: () => { byId("status").textContent = says; },
      style: "left:" + left + "%;width:" + width + "%;top:" + depth * 20 + "px;background:hsl(" + hue(text(i)) + " 70% 70%)" }, text(i)));
    for (const child of children[i].slice().sort((a, b) => frames[b][2] - frames[a][2])) {
      const part = width * frames[child][2] / (frames[i][2] || 1);
      draw(child, left, part, depth + 1);
      left += part;
    }
  };
  draw(state.root, 0, 100, 0);
  box.style.height = (deepest + 1) * 20 + "px";
  const choose = make("select", { "aria-label": "thread", onchange: e => { state.thread = Number(e.target.value); state.root = 0; show(); } },
    ...threads.map((t, i) => make("option", i === state.thread ? { value: i, selected: "" } : { value: i }, t.label + ", " + time(t.frames[0][2]))));
  return [make("h2", {}, "Time by call path: " + time(all)), make("p", {}, choose, " ",
    make("button", { onclick: zoom(0) }, "whole thread"), make("span", { class: "note" }, "  Enter: zoom to a frame; Escape: zoom out to its caller; arrow keys: next frame")), box];
}

const views = {
  Summary: () => [stepChart(), ...tables("ops").slice(0, 1).map(t => tableView({ ...t, rows: t.rows.slice(0, 15) }, "top")), moduleTree(), ...tablesView("advice"),
    ...(data.report.notes.length ? [make("h2", {}, "Not in the trace"), ...data.report.notes.map(n => make("p", {}, n))] : [])],
  Steps: () => [stepChart(), ...tablesView("steps"), ...tablesView("step_times")],
  Operators: () => tablesView("ops"),
  Modules: () => [moduleTree(), ...tablesView("modules")],
  "Flame graph": flameView,
  Memory: () => [...(data.memory || []).map(memoryChart), ...["memory_growth", "memory", "memory_categories", "memory_lines", "memory_modules"].flatMap(tablesView)],
  Kernels: () => ["gpus", "kernels", "calls"].flatMap(tablesView),
  Python: () => ["python", "python_lines"].flatMap(tablesView),
  Processes: () => ["processes", "threads", "comms", "profiler"].flatMap(tablesView),
};
function show() {
  byId("status").textContent = "";
  const parts = views[state.view]().filter(e => e !== null);
  byId("view").replaceChildren(...(parts.length ? parts : [make("p", { class: "note" }, "The run has no data for this view.")]));
  for (const tab of byId("tabs").children) {
    const selected = tab.textContent === state.view;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
  }
}
function open(view) {
  state.view = view;
  history.replaceState(null, "", "#" + encodeURIComponent(view));
  show();
}
byId("headline").textContent = data.report.headline;
for (const view of Object.keys(views)) byId("tabs").append(make("button", { role: "tab", onclick: () => open(view) }, view));
byId("search").addEventListener("input", e => { state.search = e.target.value.trim().toLowerCase(); show(); });
document.addEventListener("keydown", e => {
  const at = document.activeElement, step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
  if (e.key === "/" && !["INPUT", "SELECT"].includes(at.tagName)) { e.preventDefault(); byId("search").focus(); }
  if (e.key === "Escape" && at.id === "search") { at.value = ""; state.search = ""; show(); }
  else if (e.key === "Escape" && state.view === "Flame graph" && state.root) {
    const from = state.root;
    state.root = data.flame.threads[state.thread].frames[from][0];
    show();
    document.querySelector(".flame [data-frame='" + from + "']").focus();
  }
  const group = step && at.closest("nav, .flame");
  if (!group) return;
  e.preventDefault();
  const next = (at.parentNode === group) && group.children[[...group.children].indexOf(at) + step];
  if (next) { next.focus(); if (group.tagName === "NAV") next.click(); }
});
let wanted = "";
try { wanted = decodeURIComponent(location.hash.slice(1)); } catch { /* not one of our addresses: "#%" */ }
open(Object.hasOwn(views, wanted) ? wanted : "Summary");
