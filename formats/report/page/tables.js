// Process ids come again on other hosts.
const processOf = row => row.pid + (row.host ? " on " + row.host : "");
const roleOf = report => new Map(tables("processes", report).flatMap(t => t.rows).map(row => [processOf(row), row.role]));
const kRows = 500, kLong = 24;
function tableView(table, id) {
  const order = state.sort[id];
  let rows = table.rows.filter(rowMatches);
  if (!rows.length) return null;
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
  const nameKey = hasShort ? "short_name" : "name", place = c => c.key === nameKey ? 0 : c.unit === "text" ? 1 : 2;
  const used = table.columns.filter(c => table.rows.some(r => r[c.key]) && !(hasShort && c.key === "name")).sort((a, b) => place(a) - place(b));
  const shown = rows.slice(0, kRows);
  // Of texts: which are long, and which say no more than the first long one does.
  const isLong = c => c.unit === "text" && shown.some(row => String(row[c.key] || "").length > kLong);
  const long = new Set(used.filter(isLong)), first = used.find(c => long.has(c));
  const isSaid = c => first && c !== first && c.unit === "text" && table.rows.every(row => !row[c.key] || String(row[first.key]).includes(row[c.key]));
  const kind = c => c.unit !== "text" ? "number" : "text" + (c === first ? " first" : "") + (long.has(c) ? " long" : "") + (isSaid(c) ? " said" : "");
  const sortBy = c => () => {
    state.sort[id] = { key: c.key, up: order && order.key === c.key ? !order.up : c.unit === "text" };
    show();
    document.querySelector("[data-sort='" + id + " " + c.key + "']").focus();
  };
  const head = used.map(c => make("th", { class: kind(c), scope: "col", "aria-sort": order && order.key === c.key ? (order.up ? "ascending" : "descending") : "none" },
    make("button", { "data-sort": id + " " + c.key, onclick: sortBy(c) }, c.title || c.key)));
  // A process by its role, too: ids alone tell nobody which rank it was.
  const roles = roleOf();
  const text = (row, c) => cell(row[c.key], c.unit) + (c.key === "pid" && table.name !== "processes" && roles.get(processOf(row)) ? ", " + roles.get(processOf(row)) : "");
  const whole = (row, c) => cell(row[hasShort && c.key === "short_name" ? "name" : c.key], c.unit);
  const inside = (row, c) => {
    const at = c.key === nameKey ? placeOf(table, row) : null;
    return at ? placeLink(at, text(row, c)) : text(row, c);
  };
  const kinds = new Map(used.map(c => [c, kind(c)]));
  const body = shown.map(row => make("tr", {}, ...used.map(c => make("td", c.unit === "text" ? { class: kinds.get(c), title: whole(row, c) } : {}, inside(row, c)))));
  const box = make("div", { class: "scroll", "data-table": id }, make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)));
  return make("section", {}, make("h2", {}, table.title, state.search ? make("span", { class: "note" }, "  " + cell(rows.length) + " of " + cell(table.rows.length)) : null), box,
    rows.length > kRows ? make("p", { class: "note" }, "the first " + kRows + " of " + rows.length + " rows; search to see others") : null,
    ...(table.remarks || []).map(remark => make("p", { class: "note" }, remark)));
}
const tablesView = name => tables(name).map((t, i) => tableView(t, name + i)).filter(e => e !== null);

// Leaves out the last columns of numbers, but the first and the one that is sorted by, until a table is as wide as the window, and says which.
function fitTable(box) {
  const id = box.dataset.table, table = box.querySelector("table"), heads = [...table.tHead.rows[0].cells];
  const isWhole = state.whole.has(id), left = isWhole ? [] : heads.filter(th => th.classList.contains("said"));
  const hide = () => { for (const th of left) for (const row of table.rows) row.cells[th.cellIndex].hidden = true; };
  hide();
  const first = heads.findIndex(th => !th.classList.contains("text"));
  const loose = heads.filter((th, i) => i > Math.max(0, first) && !th.classList.contains("text") && th.getAttribute("aria-sort") === "none");
  while (!isWhole && box.scrollWidth > box.clientWidth && loose.length) {
    for (let over = box.scrollWidth - box.clientWidth; over > 0 && loose.length;) {
      const th = loose.pop();
      over -= th.offsetWidth;
      left.unshift(th);
    }
    hide();
  }
  if (!isWhole && !left.length) return;
  box.after(make("p", {}, make("button", { "aria-pressed": isWhole, "data-columns": id, onclick: () => {
    if (isWhole) state.whole.delete(id); else state.whole.add(id);
    show();
    const again = document.querySelector("[data-columns='" + id + "']");
    if (again) again.focus();
  } }, isWhole ? "only the columns that fit" : "more columns: " + left.map(th => th.textContent).join(", "))));
}
