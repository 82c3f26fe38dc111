// The page of `diff --html`: what differs, and beside it what each of the two runs was.
const besides = draw => make("div", { class: "pair" }, ...data.diff.runs.map((run, i) => make("div", {}, ...[draw(run, i ? "New" : "Base")].flat().filter(e => e !== null))));
const ofRuns = each => data.diff.runs.map(each).reduce((a, b) => a + b, 0);
function checksView() {
  const { checks } = data.diff, failed = checks.filter(check => !check.passed), shown = failed.filter(rowMatches);
  if (!checks.length || (state.search && !shown.length)) return null;
  return make("section", {}, make("h2", {}, "Limits: " + (failed.length ? failed.length + " of " + checks.length + " exceeded" : checks.length + " checked, none exceeded")),
    make("ul", { class: "checks" }, ...shown.map(check => make("li", {}, make("strong", {}, check.suite + ": " + check.name + ": "), check.text))));
}
function pairView() {
  const most = greatest(data.diff.runs.map(run => highest(run.report)));
  const width = innerWidth < 900 ? viewWidth() : (viewWidth() - 32) / 2;
  return besides((run, role) => [factsView([["Run", run.name], ...run.facts], role), stepChart(run.report, most, width), ...tables("advice", run.report).map(adviceView)]);
}
const headFound = () => data.diff.head.filter(matches);
function headView() {
  return headFound().length ? make("section", {}, make("h2", {}, "Compared"), make("ul", {}, ...headFound().map(line => make("li", {}, line)))) : null;
}
function diffViews() {
  const count = () => headFound().length + data.diff.checks.filter(check => !check.passed && rowMatches(check)).length + data.report.notes.filter(matches).length +
    ofRuns(run => factsFound([["Run", run.name], ...run.facts]).length + tables("advice", run.report).flatMap(t => t.rows).filter(rowMatches).length);
  const first = data.report.tables.filter(t => t.name === "step");
  const out = { Summary: { has: true, count, parts: () => [headView(), checksView(), ...first.map(t => tableView(t, "first")), pairView(), notesView()] } };
  for (const table of data.report.tables) out[table.tab] = { has: table.rows.length, count: () => table.rows.filter(rowMatches).length, parts: () => [tableView(table, table.name)] };
  return out;
}
