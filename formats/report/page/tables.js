// Process ids come again on other hosts.
const processOf = row => row.pid + (row.host ? " on " + row.host : "");
const roleOf = () => new Map(tables("processes").flatMap(t => t.rows).map(row => [processOf(row), row.role]));
const kRows = 500;
function tableView(table, id) {
  if (!table.rows.length) return null;
  const order = state.sort[id];
  let rows = table.rows.filter(row => matches(Object.values(row).filter(v => typeof v === "string").join(" ")));
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
  const used = table.columns.filter(c => table.rows.some(r => r[c.key]) && !(hasShort && c.key === "name")).sort((a, b) => (b.unit === "text") - (a.unit === "text"));
  const kind = c => c.unit === "text" ? "text" : "number";
  const sortBy = c => () => {
    state.sort[id] = { key: c.key, up: order && order.key === c.key ? !order.up : c.unit === "text" };
    show();
    document.querySelector("[data-sort='" + id + " " + c.key + "']").focus();
  };
  const head = used.map(c => make("th", { class: kind(c), scope: "col",
    "aria-sort": order && order.key === c.key ? (order.up ? "ascending" : "descending") : "none" },
    make("button", { "data-sort": id + " " + c.key, onclick: sortBy(c) }, c.title || c.key)));
  // A process by its role, too: ids alone tell nobody which rank it was.
  const roles = roleOf();
  const text = (row, c) => cell(row[c.key], c.unit) + (c.key === "pid" && table.name !== "processes" && roles.get(processOf(row)) ? ", " + roles.get(processOf(row)) : "");
  const whole = (row, c) => cell(row[hasShort && c.key === "short_name" ? "name" : c.key], c.unit);
  const body = rows.slice(0, kRows).map(row => make("tr", {}, ...used.map(c => make("td", c.unit === "text" ? { class: "text", title: whole(row, c) } : {}, text(row, c)))));
  return make("section", {}, make("h2", {}, table.title),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body))),
    rows.length > kRows ? make("p", { class: "note" }, "the first " + kRows + " of " + rows.length + " rows; search to see others") : null,
    ...(table.remarks || []).map(remark => make("p", { class: "note" }, remark)));
}
const tablesView = name => tables(name).map((t, i) => tableView(t, name + i)).filter(e => e !== null);
