// As TimelineKind in timeline.h. `group`: what a checkbox shows or hides.
const kKinds = [
  { text: "module or optimizer", group: "modules", color: "--module" },
  { text: "operator", group: "operators", color: "--operator" },
  { text: "annotation", group: "annotations", color: "--annotation" },
  { text: "communication", group: "communication", color: "--communication", hatched: true },
  { text: "Python function", group: "Python", color: "--python" },
  { text: "C call", group: "Python", color: "--python" },
  { text: "call of CUDA", group: "CUDA calls", color: "--call" },
  { text: "pause", group: "pauses", color: "--pause" },
  { text: "kernel", group: "kernels", color: "--kernel" },
  { text: "copy or set", group: "copies", color: "--copy" },
  { text: "communication of GPUs", group: "communication", color: "--communication", hatched: true },
];
const kFields = 6, kMostDepth = 64;

// A thread that spends less than a hundredth of the time in anything but functions of Python waits, as a rule. It is
// hidden at first, unless all are like that.
const kQuiet = "quiet threads";
function isQuiet(row, view) {
  if (row.gpu) return false;
  let busy = 0, end = 0;
  for (let i = 0; i < row.slices.length; i += kFields) {
    if (["Python", "pauses"].includes((kKinds[row.slices[i + 3]] || {}).group)) continue;
    const to = row.slices[i] + row.slices[i + 1];
    busy += Math.max(0, to - Math.max(end, row.slices[i]));
    end = Math.max(end, to);
  }
  return busy < view.ns / 100;
}

// Rows of a view with what is shown of them: slices as objects, each with its depth by what is around it.
function timelineRows(view, hidden) {
  const names = data.timeline.names, rows = [];
  for (const [number, row] of view.rows.entries()) {
    if (hidden.has(kQuiet) && isQuiet(row, view)) continue;
    const slices = [], open = [];
    let deepest = 0;
    for (let i = 0; i < row.slices.length; i += kFields) {
      const kind = kKinds[row.slices[i + 3]];
      if (!kind || hidden.has(kind.group)) continue;
      const begin = row.slices[i], ns = row.slices[i + 1];
      while (open.length && open[open.length - 1] <= begin) open.pop();
      if (open.length >= kMostDepth) continue;
      slices.push({ at: i / kFields, begin, ns, end: begin + ns, kind, name: names[row.slices[i + 2]], detail: names[row.slices[i + 4]], by: names[row.slices[i + 5]], depth: open.length });
      open.push(begin + ns);
      deepest = Math.max(deepest, open.length);
    }
    if (slices.length && (state.search === "" || slices.some(s => found(sliceLabel(s))))) rows.push({ ...row, number, slices, deepest });
  }
  return rows;
}
// A module by the end of its path where that is known, for that is what the program calls it.
function sliceLabel(slice) {
  if (slice.kind.group !== "modules") return slice.name;
  const name = slice.name.replace(/^nn\.Module: /, "");
  return slice.detail ? slice.detail.match(/([^.]*\.)?[^.]*$/)[0].replace(/^.*\.(?!\d+$)/, "") + "  " + name : name;
}
// How many slices of a view have what is searched for; all of them where nothing is.
function countSlices(view) {
  const matching = new Map();  // by name and path, as most slices share theirs with others
  let sum = 0;
  for (const row of view.rows)
    for (let i = 0; i < row.slices.length; i += kFields) {
      const [name, kind, detail] = row.slices.slice(i + 2, i + 5), key = kind + " " + name + " " + (kKinds[kind] && kKinds[kind].group === "modules" ? detail : 0);
      if (!matching.has(key)) matching.set(key, Boolean(kKinds[kind]) && matches(sliceLabel({ kind: kKinds[kind], name: data.timeline.names[name], detail: data.timeline.names[detail] })));
      sum += matching.get(key);
    }
  return sum;
}
// What is known of it besides its name.
function sliceText(slice) {
  const parts = [time(slice.ns), slice.kind.text, "begins at " + time(slice.begin)];
  if (slice.kind.group === "operators" && slice.detail && slice.detail !== "[]") parts.push("sizes " + slice.detail);
  if (slice.kind.group === "modules" && slice.detail) parts.push("at " + slice.detail);
  if (slice.by) parts.push("launched by " + slice.by);
  return parts.join(", ");
}
