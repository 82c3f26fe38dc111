// A view: whether it has anything, how much of it the search finds, and its parts.
const any = (...names) => names.some(name => tables(name).some(t => t.rows.length));
const ofTables = (...names) => ({ has: any(...names), count: () => countRows(...names), parts: () => names.flatMap(tablesView) });
const kMemory = ["memory_growth", "memory", "memory_categories", "memory_lines", "memory_modules"], kGpu = ["gpus", "gpu", "streams", "kernels", "calls", "launches", "copies"];
const topOperators = () => tables("ops").slice(0, 1).map(t => ({ ...t, rows: t.rows.slice(0, 15) }));
const summaryCount = () => countRows("advice") + factsFound().length + topOperators().reduce((sum, t) => sum + t.rows.filter(rowMatches).length, 0) + data.report.notes.filter(matches).length;

const runViews = () => ({
  Summary: { has: true, count: summaryCount, parts: () => [...tables("advice").map(adviceView), factsView(), stepChart(), ...topOperators().map(t => tableView(t, "top")), notesView()] },
  Timeline: { has: data.timeline && data.timeline.views.some(view => view.rows.length), count: () => countSlices(data.timeline.views[lane.view]), parts: timelineView },
  Steps: { ...ofTables("steps", "step_times"), parts: () => [stepChart(), ...tablesView("steps"), ...tablesView("step_times")] },
  Operators: ofTables("ops"),
  Modules: { ...ofTables("modules"), parts: () => [moduleTree(), ...tablesView("modules")] },
  "Flame graph": { has: data.flame && data.flame.threads.length, count: () => data.flame.threads.reduce((sum, thread) => sum + countFrames(thread), 0), parts: flameView },
  Memory: { has: (data.memory || []).length || any(...kMemory), count: () => countRows(...kMemory), parts: () => [...(data.memory || []).map(memoryChart), ...kMemory.flatMap(tablesView)] },
  GPUs: ofTables(...kGpu),
  "Critical path": ofTables("critical", "critical_names"),
  Python: ofTables("python", "python_lines"),
  Processes: ofTables("processes", "threads", "comms", "profiler"),
});
const views = data.diff ? diffViews() : runViews();
for (const name of Object.keys(views)) if (!views[name].has) delete views[name];
