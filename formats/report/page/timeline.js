// An icicle of what threads did, over what GPUs did, on a canvas that is as large as what one sees of it.
const kLevel = 18, kHead = 22, kAxis = 22;
const lane = { view: 0, hidden: new Set(), from: 0, to: 0, chosen: null, of: null, wanted: null };

function timelineView() {
  const { views } = data.timeline;
  if (lane.wanted && views[lane.wanted[0]]) lane.view = lane.wanted[0];
  const view = views[lane.view];
  const quiet = view.rows.filter(row => isQuiet(row, view)).length;
  if (!lane.of && quiet < view.rows.filter(row => !row.gpu).length) lane.hidden.add(kQuiet);
  if (lane.of !== view) Object.assign(lane, { of: view, from: 0, to: view.ns, chosen: null });
  if (lane.wanted) showKindOf(lane.wanted);
  // What is hidden is not seen where a link leads.
  function showKindOf([, r, s]) {
    const row = view.rows[r], kind = row && kKinds[row.slices[s * kFields + 3]];
    if (!kind) return;
    lane.hidden.delete(kind.group);
    if (isQuiet(row, view)) lane.hidden.delete(kQuiet);
  }
  const title = v => v.kind === "all" ? "the whole recording" : v.kind === "typical" ? "a typical step" : "the slowest step";
  const about = v => v.kind === "all" ? "No steps were found, so this is all of it: " + time(v.ns) + "." :
    "Step " + v.step + " of " + v.process + ", " + time(v.ns) + ": " + (v.kind === "typical" ? "the middle one by duration of " : "the longest of ") + cell(v.steps) +
    (v.steps === 1 ? " step." : " steps" + (v.kind === "typical" ? " of this process" : "") + ", without the first.");
  const choose = make("div", { class: "choice", role: "group", "aria-label": "which step" }, ...views.map((v, i) =>
    make("button", { "aria-pressed": i === lane.view, onclick: () => { lane.view = i; show(); document.querySelector(".choice [aria-pressed=true]").focus(); } }, title(v) + ", " + time(v.ns))));
  const there = new Set(view.rows.flatMap(row => row.slices.filter((_, i) => i % kFields === 3).map(kind => kKinds[kind].group)));
  const groups = [...new Set(kKinds.map(kind => kind.group))].filter(group => there.has(group));
  const toggle = group => {
    const kind = kKinds.find(k => k.group === group);
    return make("label", {}, make("input", { type: "checkbox", ...(lane.hidden.has(group) ? {} : { checked: "" }), onchange: e => {
      if (e.target.checked) lane.hidden.delete(group); else lane.hidden.add(group);
      layOut();
    } }), kind ? make("span", { class: "swatch" + (kind.hatched ? " hatched" : ""), style: "background-color:var(" + kind.color + ")" }) : null, group);
  };
  const canvas = make("canvas", { tabindex: 0, role: "application", "aria-label": "timeline of " + title(view), "aria-describedby": "timeline-keys" });
  const space = make("div", { class: "space" }), box = make("div", { class: "lanes" }, canvas, space);
  const about_one = make("p", { class: "one" }, "Point at a slice; click it, or choose one with the keys, to keep it here."), tip = make("div", { class: "tip", "aria-hidden": "true" });
  tip.hidden = true;
  let rows = [], tops = [], total = 0, pen = canvas.getContext("2d"), colors = {};

  function layOut() {
    rows = timelineRows(view, lane.hidden);
    let at = kAxis;
    tops = rows.map((row, i) => {
      const top = at;
      row.is_first = !i || rows[i - 1].process !== row.process;
      at += (row.is_first ? kHead : 0) + kHead + row.deepest * kLevel + 6;
      return top;
    });
    total = at;
    if (lane.chosen && !rows.some(row => row.slices.some(s => same(s, lane.chosen)))) lane.chosen = null;
    size();
  }
  const same = (a, b) => a && b && a.begin === b.begin && a.ns === b.ns && a.name === b.name && a.depth === b.depth;
  const levelTop = i => tops[i] + (rows[i].is_first ? kHead : 0) + kHead;
  function size() {
    const height = Math.min(total + 2, Math.max(280, innerHeight * 0.78)), width = box.clientWidth, scale = devicePixelRatio || 1;
    box.style.height = height + "px";
    space.style.height = Math.max(0, total - height) + "px";
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round((height - 2) * scale);
    canvas.style.width = width + "px";
    canvas.style.height = height - 2 + "px";
    const style = getComputedStyle(document.documentElement);
    colors = Object.fromEntries(["--bg", "--fg", "--dim", "--line", "--ink", "--mark", "--hit", "--panel", ...kKinds.map(k => k.color)].map(name => [name, style.getPropertyValue(name).trim()]));
    draw();
  }
  const width = () => canvas.clientWidth || box.clientWidth;
  const x = ns => (ns - lane.from) / (lane.to - lane.from) * width();
  function shorten(text, room) {
    const most = Math.floor(room / pen.measureText("n").width);
    return text.length <= most ? text : most < 3 ? "" : text.slice(0, most - 1) + "…";
  }
  function drawRow(row, i, scroll) {
    const top = tops[i] - scroll, bottom = levelTop(i) - scroll + row.deepest * kLevel, high = canvas.clientHeight;
    if (bottom < kAxis || top > high) return;
    pen.textBaseline = "middle";
    let at = top;
    if (row.is_first) {
      pen.fillStyle = colors["--panel"];
      pen.fillRect(0, at, width(), kHead);
      pen.fillStyle = colors["--fg"];
      pen.font = "600 12px system-ui, sans-serif";
      pen.fillText(shorten(row.process, width() - 12), 6, at + kHead / 2);
      at += kHead;
    }
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = colors["--dim"];
    pen.fillText(shorten(row.label, width() - 12), 6, at + kHead / 2);
    pen.font = "11.5px ui-monospace, monospace";
    const until = [];  // per level: where the last one that was drawn ends, as thousands may be in one pixel
    for (const slice of row.slices) {
      if (slice.end < lane.from || slice.begin > lane.to) continue;
      const y = levelTop(i) - scroll + slice.depth * kLevel;
      if (y + kLevel < kAxis || y > high) continue;
      const left = Math.max(-2, x(slice.begin)), right = Math.min(width() + 2, x(slice.end)), chosen = same(slice, lane.chosen), hit = found(sliceLabel(slice));
      if (right < (until[slice.depth] || -1) + 0.3 && !chosen && !hit) continue;
      until[slice.depth] = Math.max(right, left + 0.6);
      const wide = Math.max(0.6, right - left - (right - left > 3 ? 1 : 0));
      pen.globalAlpha = state.search === "" || hit || chosen ? 1 : 0.3;
      pen.fillStyle = colors[slice.kind.color];
      pen.fillRect(left, y, wide, kLevel - 1);
      pen.globalAlpha = 1;
      if (slice.kind.hatched && wide > 3) hatch(left, y, wide);
      if (hit || chosen) {
        pen.strokeStyle = colors[chosen ? "--fg" : "--hit"];
        pen.lineWidth = 2;
        pen.strokeRect(left + 1, y + 1, Math.max(1, wide - 2), kLevel - 3);
      }
      if (wide < 24) continue;
      const from = Math.max(0, left);
      pen.fillStyle = colors["--ink"];
      pen.fillText(shorten(sliceLabel(slice), right - from - 8), from + 4, y + kLevel / 2);
    }
  }
  function hatch(left, y, wide) {
    pen.save();
    pen.beginPath();
    pen.rect(left, y, wide, kLevel - 1);
    pen.clip();
    pen.beginPath();
    for (let at = left - kLevel; at < left + wide; at += 8) { pen.moveTo(at, y + kLevel); pen.lineTo(at + kLevel, y); }
    pen.strokeStyle = colors["--ink"];
    pen.globalAlpha = 0.25;
    pen.lineWidth = 1.5;
    pen.stroke();
    pen.restore();
  }
  function draw() {
    const scale = devicePixelRatio || 1, scroll = box.scrollTop;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width(), canvas.clientHeight);
    const span = lane.to - lane.from, marks = ticks(span, Math.max(2, width() / 110)), each = marks[1] || span;
    const first = Math.ceil(lane.from / each) * each, lines = [];
    for (let ns = first; ns <= lane.to; ns += each) lines.push(ns);
    pen.fillStyle = colors["--line"];
    for (const ns of lines) pen.fillRect(x(ns), kAxis, 1, canvas.clientHeight);
    rows.forEach((row, i) => drawRow(row, i, scroll));
    pen.fillStyle = colors["--bg"];
    pen.fillRect(0, 0, width(), kAxis);
    pen.fillStyle = colors["--line"];
    pen.fillRect(0, kAxis - 1, width(), 1);
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = colors["--dim"];
    for (const ns of lines) {
      const text = roundTime(ns), wide = pen.measureText(text).width;
      pen.fillText(text, Math.min(Math.max(2, x(ns) - wide / 2), width() - wide - 2), kAxis / 2);
    }
  }
  function move(from, span) {
    span = Math.min(view.ns, Math.max(Math.min(view.ns, 50), span));
    lane.from = Math.min(Math.max(0, from), view.ns - span);
    lane.to = lane.from + span;
    draw();
  }
  const zoom = (factor, at) => move(at - (at - lane.from) * factor, (lane.to - lane.from) * factor);
  const reset = () => move(0, view.ns);
  const ns = px => lane.from + px / width() * (lane.to - lane.from);
  function sliceAt(px, py) {
    if (py < kAxis) return null;
    const y = py + box.scrollTop;
    let i = rows.length - 1;
    while (i >= 0 && tops[i] > y) --i;
    if (i < 0) return null;
    const depth = Math.floor((y - levelTop(i)) / kLevel), near = ns(1) - ns(0), at = ns(px);
    let best = null;
    for (const s of rows[i].slices)
      if (s.depth === depth && s.begin - near <= at && s.end + near >= at && (!best || s.ns > best.ns)) best = s;
    return best;
  }
  const telling = slice => [make("strong", {}, sliceLabel(slice)), ", " + sliceText(slice),
    make("span", { class: "note" }, " (" + (100 * slice.ns / (view.ns || 1)).toFixed(1) + " %)")];
  function hover(e) {
    const slice = e && e.pointerType !== "touch" ? sliceAt(e.offsetX, e.offsetY) : null;
    tip.hidden = !slice;
    if (!slice) return;
    tip.replaceChildren(...telling(slice));
    tip.style.left = Math.max(4, Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = (e.clientY + 18 + tip.offsetHeight > innerHeight ? e.clientY - tip.offsetHeight - 10 : e.clientY + 18) + "px";
  }
  function pick(slice, row) {
    lane.chosen = slice;
    byId("status").textContent = sliceLabel(slice) + ", " + sliceText(slice);
    about_one.replaceChildren(...telling(slice));
    const span = lane.to - lane.from;
    if (slice.end <= lane.from || slice.begin >= lane.to) move(slice.begin + slice.ns / 2 - span / 2, span);
    const y = levelTop(row) + slice.depth * kLevel;
    if (y < box.scrollTop + kAxis || y + kLevel > box.scrollTop + canvas.clientHeight) box.scrollTop = y - canvas.clientHeight / 2;
    draw();
  }
  // The next slice in a direction: beside it on its level, its caller, the first inside it, or that of another row.
  function step(key) {
    const row = rows.findIndex(r => r.slices.some(s => same(s, lane.chosen)));
    if (row < 0) return rows.length ? pick(rows[0].slices[0], 0) : undefined;
    const { slices } = rows[row], at = slices.findIndex(s => same(s, lane.chosen)), now = slices[at];
    const on = { ArrowRight: s => s.depth === now.depth && s.begin >= now.end, ArrowLeft: s => s.depth === now.depth && s.end <= now.begin,
      ArrowUp: s => s.depth === now.depth - 1 && s.begin <= now.begin && s.end >= now.end, ArrowDown: s => s.depth === now.depth + 1 && s.begin >= now.begin && s.end <= now.end }[key];
    const next = key === "ArrowLeft" ? slices.slice(0, at).reverse().find(on) : slices.find(on);
    if (next) return pick(next, row);
    const other = row + (key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0);
    if (other === row || !rows[other]) return;
    pick(rows[other].slices.find(s => s.end > lane.from) || rows[other].slices[0], other);
  }
  canvas.addEventListener("keydown", e => {
    const pan = (lane.to - lane.from) / 4, middle = lane.chosen ? lane.chosen.begin + lane.chosen.ns / 2 : (lane.from + lane.to) / 2;
    const actions = { "+": () => zoom(0.5, middle), "=": () => zoom(0.5, middle), "-": () => zoom(2, middle), "0": reset, Escape: reset, Home: reset,
      a: () => move(lane.from - pan, lane.to - lane.from), d: () => move(lane.from + pan, lane.to - lane.from), w: () => zoom(0.5, middle), s: () => zoom(2, middle),
      Enter: () => lane.chosen && move(lane.chosen.begin - lane.chosen.ns * 0.05, lane.chosen.ns * 1.1) };
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key.startsWith("Arrow")) step(e.key); else if (actions[e.key]) actions[e.key](); else return;
    e.preventDefault();
    e.stopPropagation();
  });
  canvas.addEventListener("wheel", e => {
    const sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey, by = e.deltaX || e.deltaY;
    if (!sideways && e.deltaY > 0 && lane.from <= 0 && lane.to >= view.ns) return;  // all is shown: the page scrolls
    e.preventDefault();
    if (sideways) move(lane.from + by / width() * (lane.to - lane.from), lane.to - lane.from);
    else zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY / 300))), ns(e.offsetX));
  }, { passive: false });
  // One pointer drags, two zoom.
  const pointers = new Map();
  let dragged = 0;
  canvas.addEventListener("pointerdown", e => { pointers.set(e.pointerId, [e.offsetX, e.offsetY]); dragged = 0; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", e => {
    const before = pointers.get(e.pointerId);
    if (!before) return hover(e);
    hover(null);
    const others = [...pointers].filter(([id]) => id !== e.pointerId).map(([, at]) => at);
    pointers.set(e.pointerId, [e.offsetX, e.offsetY]);
    dragged += Math.abs(e.offsetX - before[0]) + Math.abs(e.offsetY - before[1]);
    if (others.length) {
      const was = Math.max(8, Math.abs(before[0] - others[0][0])), is = Math.max(8, Math.abs(e.offsetX - others[0][0]));
      return zoom(was / is, ns((e.offsetX + others[0][0]) / 2));
    }
    move(lane.from - (e.offsetX - before[0]) / width() * (lane.to - lane.from), lane.to - lane.from);
    if (e.pointerType === "mouse") box.scrollTop -= e.offsetY - before[1];
  });
  const release = e => pointers.delete(e.pointerId);
  canvas.addEventListener("pointerup", e => {
    release(e);
    if (dragged > 4) return;
    const slice = sliceAt(e.offsetX, e.offsetY), row = slice ? rows.findIndex(r => r.slices.includes(slice)) : -1;
    if (slice) pick(slice, row);
  });
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => hover(null));
  canvas.addEventListener("dblclick", reset);
  box.addEventListener("scroll", draw);
  const watch = new ResizeObserver(() => canvas.isConnected ? size() : watch.disconnect());
  queueMicrotask(() => { layOut(); goTo(lane.wanted); lane.wanted = null; watch.observe(box); });
  function goTo(place) {
    const i = place ? rows.findIndex(row => row.number === place[1]) : -1, slice = i < 0 ? null : rows[i].slices.find(s => s.at === place[2]);
    if (!slice) return;
    move(slice.begin - slice.ns, slice.ns * 3);
    pick(slice, i);
  }
  const left = [];
  if (view.left_out) left.push(cell(view.left_out) + " narrower slices are left out.");
  if (view.left_out_processes) left.push(cell(view.left_out_processes) + " more processes are left out.");
  return [make("h2", {}, "Timeline"), choose, make("p", {}, about(view)),
    make("div", { class: "tools" }, ...[...groups, ...(quiet ? [kQuiet] : [])].map(toggle), make("span", { class: "buttons" },
      ...[["zoom in", () => zoom(0.5, (lane.from + lane.to) / 2)], ["zoom out", () => zoom(2, (lane.from + lane.to) / 2)], ["all of it", reset]].map(([text, onclick]) => make("button", { onclick }, text)))),
    box, tip, about_one,
    make("p", { class: "note", id: "timeline-keys" }, "Wheel or + and -: zoom; drag, or A and D: pan; double click or 0: all of it; arrow keys: go from slice to slice; Enter: zoom to it. " +
      "Functions of torch's own are not shown. " + left.join(" "))];
}
