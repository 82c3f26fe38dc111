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
