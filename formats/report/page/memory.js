function memoryChart(line) {
  if (!matches(line.label)) return null;
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
