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
  const total = n => n.row ? (n.row.forward_total_ns || 0) + (n.row.backward_total_ns || 0) + (n.row.recompute_total_ns || 0) : 0;
  const link = n => n.row ? placeOf({ name: "modules" }, n.row) : null;
  const matching = (label, n) => matches(label + " " + (n.row ? n.row.name : "")) || [...n.children].some(([l, c]) => matching(l, c));
  const draw = (label, n, depth) => {
    const numbers = n.row ? "forward " + time(n.row.forward_total_ns || 0) + ", backward " + time(n.row.backward_total_ns || 0) + (n.row.recompute_total_ns ? ", recompute " + time(n.row.recompute_total_ns) : "") + ", " + cell(n.row.calls) + " calls" : "";
    const line = [label + (n.row && n.row.name !== label ? "  " + n.row.name.replace(/^nn\.Module: /, "") : ""), make("span", { class: "num" }, numbers)];
    const inside = [...n.children].filter(([l, c]) => matching(l, c)).sort((a, b) => total(b[1]) - total(a[1]));
    const node = e => make("div", { class: "node" }, e, link(n) ? placeLink(link(n), "timeline") : null);
    if (!inside.length) return node(make("div", { class: "leaf" }, ...line));
    const details = make("details", {}, make("summary", {}, ...line), ...inside.map(([l, c]) => draw(l, c, depth + 1)));
    details.open = depth < 3 || state.search !== "";
    return node(details);
  };
  if (![...top.children].some(([l, c]) => matching(l, c))) return null;
  return make("section", { class: "modules" }, make("h2", {}, "Module tree"),
    ...[...top.children].filter(([l, c]) => matching(l, c)).sort((a, b) => total(b[1]) - total(a[1])).map(([l, c]) => draw(l, c, 0)));
}
