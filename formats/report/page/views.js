// A view: whether it has anything, and its parts.
const any = (...names) => names.some(name => tables(name).some(t => t.rows.length));
const views = {
  Summary: { has: true, parts: () => [...tables("advice").map(adviceView), factsView(), stepChart(),
    ...tables("ops").slice(0, 1).map(t => tableView({ ...t, rows: t.rows.slice(0, 15) }, "top")), notesView()] },
  Timeline: { has: data.timeline && data.timeline.views.some(view => view.rows.length), parts: timelineView },
  Steps: { has: any("steps", "step_times"), parts: () => [stepChart(), ...tablesView("steps"), ...tablesView("step_times")] },
  Operators: { has: any("ops"), parts: () => tablesView("ops") },
  Modules: { has: any("modules"), parts: () => [moduleTree(), ...tablesView("modules")] },
  "Flame graph": { has: data.flame && data.flame.threads.length, parts: flameView },
  Memory: { has: (data.memory || []).length || any("memory_growth", "memory", "memory_categories", "memory_lines", "memory_modules"),
    parts: () => [...(data.memory || []).map(memoryChart), ...["memory_growth", "memory", "memory_categories", "memory_lines", "memory_modules"].flatMap(tablesView)] },
  GPUs: { has: any("gpus", "gpu", "streams", "kernels", "calls", "launches", "copies"),
    parts: () => ["gpus", "gpu", "streams", "kernels", "calls", "launches", "copies"].flatMap(tablesView) },
  "Critical path": { has: any("critical", "critical_names"), parts: () => ["critical", "critical_names"].flatMap(tablesView) },
  Python: { has: any("python", "python_lines"), parts: () => ["python", "python_lines"].flatMap(tablesView) },
  Processes: { has: any("processes", "threads", "comms", "profiler"), parts: () => ["processes", "threads", "comms", "profiler"].flatMap(tablesView) },
};
for (const name of Object.keys(views)) if (!views[name].has) delete views[name];

function show() {
  byId("status").textContent = "";
  const parts = views[state.view].parts().filter(e => e !== null);
  byId("view").replaceChildren(...parts);
  if (!parts.length) byId("view").append(make("p", { class: "note" }, "Nothing here matches the search."));
  for (const tab of byId("tabs").children) {
    const selected = tab.textContent === state.view;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
    if (selected) byId("tabs").scrollLeft = tab.offsetLeft - (byId("tabs").clientWidth - tab.offsetWidth) / 2;
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
// Charts have the width of the window.
let drawn = innerWidth, later = 0;
addEventListener("resize", () => {
  clearTimeout(later);
  later = setTimeout(() => { if (innerWidth !== drawn && state.view !== "Timeline") show(); drawn = innerWidth; }, 150);
});
let wanted = "";
try { wanted = decodeURIComponent(location.hash.slice(1)); } catch { /* not one of our addresses: "#%" */ }
open(Object.hasOwn(views, wanted) ? wanted : "Summary");
