// One finding a block: the sentence, what it costs, what it was seen by, and what to do.
function adviceView(table) {
  const share = table.columns.find(c => c.key === "share_percent")?.title;
  const time = (row, key) => row[key] === null ? "" : cell(row[key], "ns");
  const block = row => make("article", { class: "finding" },
    make("h3", {}, make("span", { class: "headline" }, row.finding),
      row.cost_ns === null ? null : make("span", { class: "share" }, time(row, "cost_ns") + " " + share + ", " + cell(row.share_percent, "percent"))),
    row.evidence ? make("p", {}, row.evidence) : null,
    make("p", {}, make("strong", {}, "What to do: "), row.todo),
    make("dl", {}, ...[["Where", row.where, "code"], ["Without it", time(row, "without_ns"), ""]].filter(([, text]) => text)
      .flatMap(([label, text, kind]) => [make("dt", {}, label), make("dd", { class: kind }, text)])));
  const rows = table.rows.filter(rowMatches);
  if (state.search && !rows.length) return null;
  return make("section", { class: "advice" }, make("h2", {}, table.title), ...rows.map(block),
    ...(table.remarks || []).map(remark => make("p", { class: "note" }, remark[0].toUpperCase() + remark.slice(1) + (/[.!?]$/.test(remark) ? "" : "."))));
}

const factsFound = (facts = data.facts || []) => facts.filter(fact => matches(fact.join(" ")));
function factsView(all, title = "The run") {
  const facts = factsFound(all);
  if (!facts.length) return null;
  return make("section", {}, make("h2", {}, title),
    make("dl", { class: "facts" }, ...facts.flatMap(([label, text]) => [make("dt", {}, label), make("dd", { class: label === "Command" ? "code" : "" }, text)])));
}

function notesView() {
  const notes = data.report.notes.filter(matches);
  if (!notes.length) return null;
  return make("section", {}, make("h2", {}, data.diff ? "Notes" : "Not in the trace"), make("ul", {}, ...notes.map(n => make("li", {}, n))));
}
