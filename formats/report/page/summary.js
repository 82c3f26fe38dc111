// One finding a block, by the columns that the table has: its first text is the headline, the first number stands
// beside it, the next text is a sentence, and the others have their titles.
function adviceView(table) {
  const texts = table.columns.filter(c => c.unit === "text"), numbers = table.columns.filter(c => c.unit !== "text");
  const block = row => {
    const has = c => c && row[c.key] !== null && row[c.key] !== undefined && row[c.key] !== "";
    const [headline, sentence, ...others] = texts, [share, ...more] = numbers;
    return make("article", { class: "finding" },
      make("h3", {}, make("span", { class: "headline" }, has(headline) ? String(row[headline.key]) : "finding"),
        has(share) ? make("span", { class: "share" }, cell(row[share.key], share.unit) + (share.unit === "percent" ? " of the steps" : "")) : null),
      has(sentence) ? make("p", {}, String(row[sentence.key])) : null,
      make("dl", {}, ...[...more, ...others].filter(has).flatMap(c => [make("dt", {}, c.title || c.key),
        make("dd", { class: c.key === "where" ? "code" : "" }, cell(row[c.key], c.unit))])));
  };
  const rows = table.rows.filter(row => matches(Object.values(row).join(" ")));
  return make("section", { class: "advice" }, make("h2", {}, table.title), ...rows.map(block),
    ...(table.remarks || []).map(remark => make("p", { class: "note" }, remark[0].toUpperCase() + remark.slice(1) + (/[.!?]$/.test(remark) ? "" : "."))));
}

function factsView() {
  if (!(data.facts || []).length) return null;
  return make("section", {}, make("h2", {}, "The run"),
    make("dl", { class: "facts" }, ...data.facts.flatMap(([label, text]) => [make("dt", {}, label), make("dd", { class: label === "Command" ? "code" : "" }, text)])));
}

function notesView() {
  if (!data.report.notes.length) return null;
  return make("section", {}, make("h2", {}, "Not in the trace"), make("ul", {}, ...data.report.notes.map(n => make("li", {}, n))));
}
