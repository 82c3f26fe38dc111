function hue(name) {
  let hash = 0;
  for (const c of name) hash = (hash * 31 + c.codePointAt(0)) >>> 0;
  return name.startsWith("aten::") ? 200 + hash % 30 : name.startsWith("nn.Module") ? 95 + hash % 35 : 20 + hash % 35;
}
// A frame is [parent, name, total ns, own ns, calls], and behind it total ns, own ns and calls in steps where it has any.
const kInSteps = 3;
const hasSteps = thread => thread.frames[0].length > 2 + kInSteps;
function flameTimes(thread) {
  const more = state.is_steps_only && hasSteps(thread) ? kInSteps : 0;
  return { total: f => f[2 + more] || 0, own: f => f[3 + more] || 0, calls: f => f[4 + more] || 0 };
}
function countFrames(thread) {
  const times = flameTimes(thread), name = data.flame.names.map(matches);
  return thread.frames.filter((f, i) => i && times.total(f) && name[f[1]]).length;
}
// Of each frame whether it is found, is around one that is, or inside one.
function framesFound(thread) {
  const { frames } = thread, names = data.flame.names.map(found), is = frames.map((f, i) => i > 0 && names[f[1]]), kept = is.slice();
  for (let i = frames.length - 1; i > 0; --i) if (kept[i]) kept[frames[i][0]] = true;
  const inside = is.slice();
  for (let i = 1; i < frames.length; ++i) if (inside[frames[i][0]]) inside[i] = kept[i] = true;
  return kept;
}
function flameView() {
  if (!data.flame || !data.flame.threads.length)
    return [make("p", { class: "note" }, data.flame ? "No calls were recorded." : "A flame graph needs the raw records of a run (run --discard removes them).")];
  const { names, threads } = data.flame, thread = threads[state.thread], { frames, label } = thread, { total, own, calls } = flameTimes(thread);
  const kept = state.search ? framesFound(thread) : null;
  const children = frames.map(() => []);
  for (let i = 1; i < frames.length; ++i) if (total(frames[i]) && (!kept || kept[i])) children[frames[i][0]].push(i);
  const text = i => i ? names[frames[i][1]] : label;
  const all = total(frames[state.root]), box = make("div", { class: "flame" });
  let deepest = 0;
  const zoom = i => () => { state.root = i; show(); (document.querySelector(".flame [data-frame='" + i + "']") || byId("view")).focus(); };
  const draw = (i, left, width, depth) => {
    if (width < 0.08) return;
    deepest = Math.max(deepest, depth);
    const says = text(i) + ", " + time(total(frames[i])) + ", own " + time(own(frames[i])) + ", " + cell(calls(frames[i])) + " calls";
    box.append(make("button", { "data-frame": i, title: says, "aria-label": says, class: found(text(i)) ? "hit" : "", onclick: zoom(i),
      onfocus: () => { byId("status").textContent = says; },
      style: "left:" + left + "%;width:" + width + "%;top:" + depth * 20 + "px;background:hsl(" + hue(text(i)) + " 70% 70%)" }, text(i)));
    for (const child of children[i].slice().sort((a, b) => total(frames[b]) - total(frames[a]))) {
      const part = width * total(frames[child]) / (total(frames[i]) || 1);
      draw(child, left, part, depth + 1);
      left += part;
    }
  };
  draw(state.root, 0, 100, 0);
  box.style.height = (deepest + 1) * 20 + "px";
  const choose = make("select", { "aria-label": "thread", onchange: e => { state.thread = Number(e.target.value); state.root = 0; show(); } },
    ...threads.map((t, i) => make("option", i === state.thread ? { value: i, selected: "" } : { value: i }, t.label + ", " + time(flameTimes(t).total(t.frames[0])))));
  const steps = make("label", { class: "only" }, make("input", { type: "checkbox", id: "steps-only", ...(state.is_steps_only ? { checked: "" } : {}),
    onchange: e => { state.is_steps_only = e.target.checked; state.root = 0; show(); byId("steps-only").focus(); } }), "steps only");
  const about = kept && !kept[0] ? "Nothing on this thread matches the search." : state.is_steps_only && !hasSteps(thread) ? "This thread has no part in a step: all of its time is shown." : "";
  return [make("h2", {}, "Time by call path: " + time(all) + (state.is_steps_only && hasSteps(thread) ? " in steps" : "")),
    make("p", { class: "tools" }, choose, make("button", { onclick: zoom(0) }, "whole thread"), threads.some(hasSteps) ? steps : null,
      make("span", { class: "note" }, "Enter: zoom to a frame; Escape: zoom out to its caller; arrow keys: next frame")),
    about ? make("p", { class: "note" }, about) : null, kept && !kept[0] ? null : box];
}
