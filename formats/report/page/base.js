"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const tables = (name, report = data.report) => report.tables.filter(t => t.name === name);
const state = { view: null, search: "", thread: 0, root: 0, is_steps_only: false, sort: {}, whole: new Set() };

// Sets text only, so nothing from the data becomes markup.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "defs", "pattern", "path", "line", "rect", "text", "title"].includes(tag);
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
// Of an axis: without digits that say nothing.
const roundTime = ns => ns === 0 ? "0" : time(ns).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
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
// The same for the texts of a row, which are asked for at each key of a search.
const rowTexts = new WeakMap();
function rowMatches(row) {
  if (state.search === "") return true;
  if (!rowTexts.has(row)) rowTexts.set(row, Object.values(row).filter(v => typeof v === "string").join(" ").toLowerCase());
  return rowTexts.get(row).includes(state.search);
}
const countRows = (...names) => names.flatMap(name => tables(name)).reduce((sum, t) => sum + t.rows.filter(rowMatches).length, 0);
