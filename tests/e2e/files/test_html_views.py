"""The page of `report --html` and `diff --html`: nothing is cut off, the search counts, addresses, links, steps alone, two runs side by side."""
import json
import re
import subprocess
import sys

import pytest

from browser import FRAME, chromium, needs_chromium, said_in, visit, visit_in_time
from conftest import clean_environment, profile

pytestmark = [pytest.mark.once, needs_chromium]

PROGRAM = """
import sys, torch
from torch import nn
class Inner_of_the_page(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer_of_the_page = nn.Linear(64, 64)
    def forward(self, x): return self.layer_of_the_page(x).relu()
def before_the_steps():
    return [torch.ones(300, 300).matmul(torch.ones(300, 300)) for _ in range(40)]
def train_of_the_page():
    model = nn.Sequential(Inner_of_the_page(), nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(12):
        for _ in range(int(sys.argv[1])):
            model(torch.ones(32, 64)).sum().backward()
        optimizer.step()
before_the_steps()
train_of_the_page()
"""


@pytest.fixture(scope="module")
def runs(launcher, tmp_path_factory):
    """A directory with the runs `once` and `twice`, of which each step does the same once and twice."""
    directory = tmp_path_factory.mktemp("views")
    (directory / "program.py").write_text(PROGRAM)
    for name, times in ("once", 1), ("twice", 2):
        run = profile(launcher, directory / name, [sys.executable, "program.py", times], options=["-q"], cwd=directory)
        assert run.status == 0, run.stderr
    return directory


@pytest.fixture(scope="module")
def page(runs, launcher):
    done = subprocess.run([launcher, "report", runs / "once", "--html", runs / "page.html"], capture_output=True, text=True, env=clean_environment())
    assert done.returncode == 0, done.stderr
    return runs / "page.html"


@pytest.fixture(scope="module")
def compared(runs, launcher):
    done = subprocess.run([launcher, "diff", runs / "once", runs / "twice", "--fail-over", "1", "--metric", "allocated", "--html", runs / "diff.html"],
                          capture_output=True, text=True, env=clean_environment())
    assert done.returncode == 1 and done.stdout.startswith("BASE"), done.stderr
    return runs / "diff.html"


# Of each tab what lies beside the window or beside the box that it is in. A canvas and a flame graph draw what has room.
CUT = """
said.wide = document.documentElement.clientWidth;
said.cut = [];
said.columns = {};
for (const name of Object.keys(views)) {
  open(name);
  await new Promise(done => setTimeout(done, 50));
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) said.cut.push([name, "the page", page.scrollWidth]);
  said.columns[name] = [...view().querySelectorAll("th")].filter(e => !e.hidden).map(e => e.textContent);
  if (page.clientWidth < 1000) continue;
  for (const e of document.querySelectorAll("header *, main *")) {
    if (e.closest(".flame, .lanes, .tip, svg") || !e.checkVisibility()) continue;
    const at = e.getBoundingClientRect();
    if (at.right > page.clientWidth + 1 || at.left < -1 || (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== "visible"))
      said.cut.push([name, e.tagName, e.textContent.slice(0, 40), at.right]);
  }
}
"""


@pytest.mark.parametrize("which", ["page", "compared"])
@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_nothing_is_cut_off(which, width, request, tmp_path):
    # The page is in a frame, as no window is as narrow as a telephone.
    inner = tmp_path / "inner.html"
    text = request.getfixturevalue(which).read_text()
    tell = "parent.postMessage(JSON.stringify(said), '*');"
    inner.write_text(text.replace("</body>", FRAME.replace("document.body.replaceChildren", tell + " document.body.replaceChildren") % CUT))
    outer = tmp_path / "outer.html"
    outer.write_text("<body><iframe src='inner.html' style='border:0;width:%dpx;height:800px'></iframe><script>onmessage = e => "
                     "document.body.replaceChildren('SAID' + e.data + 'DIAS');</script></body>" % width)
    said = said_in(chromium(tmp_path / "profile", "--window-size=1600,900", "--virtual-time-budget=60000", "--dump-dom", outer.as_uri()))
    assert said["wide"] > width - 30 and said["wide"] <= width
    assert said["cut"] == []
    if which == "page" and width >= 1024:
        assert "bytes" in said["columns"]["Memory"]


def test_the_search_counts_in_each_tab_and_keeps_only_what_it_finds(page, tmp_path):
    said = visit(page, """
type("INNER_of_the_PAGE");
const counts = () => Object.fromEntries([...document.querySelectorAll("nav button")].map(e => [e.dataset.view, e.querySelector(".count").textContent.trim()]));
said.counts = counts();
said.shown = {};
for (const name of Object.keys(views)) {
  open(name);
  said.shown[name] = { rows: view().querySelectorAll("tbody tr").length, text: view().textContent, heads: [...view().querySelectorAll("h2")].map(e => e.textContent),
    findings: view().querySelectorAll(".finding").length, frames: view().querySelectorAll(".flame button").length };
}
said.status = (type("inner_of_the_page"), document.getElementById("status").textContent);
type("nothing is called so");
said.none = counts();
open("Operators");
said.none_text = view().textContent;
type("");
said.all = counts();
open("Flame graph");
said.all_frames = view().querySelectorAll(".flame button").length;
""", tmp_path)
    counts = {name: int(text.replace(",", "")) for name, text in said["counts"].items()}
    assert counts["Modules"] >= 1 and counts["Timeline"] >= 1 and counts["Flame graph"] >= 1 and counts["Operators"] == 0
    assert said["shown"]["Modules"]["rows"] == counts["Modules"]
    assert said["shown"]["Operators"] == {"rows": 0, "text": "Nothing here matches the search.", "heads": [], "findings": 0, "frames": 0}
    # A card stands under a heading, and no heading stands alone.
    for name, shown in said["shown"].items():
        if shown["rows"] + shown["findings"]:
            assert shown["heads"], name
    assert 0 < said["shown"]["Flame graph"]["frames"] < said["all_frames"]
    assert "Modules %d" % counts["Modules"] in said["status"]
    assert set(said["none"].values()) == {"0"} and said["none_text"] == "Nothing here matches the search."
    assert set(said["all"].values()) == {""}


def test_the_title_says_what_the_run_was(page, tmp_path):
    said = visit(page, "said.title = document.title; said.head = document.querySelector('header').textContent;", tmp_path)
    host = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)[1])["title"][2]
    assert re.fullmatch(r"\S*python\S* program.py 1, 12 steps, %s, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, torchprof" % re.escape(host), said["title"])
    assert "program.py 1" in said["head"] and "12 steps" in said["head"]


def test_a_changed_address_opens_its_tab_and_back_is_back(page, tmp_path):
    said = visit_in_time(page, """
const selected = () => document.querySelector("[aria-selected=true]").dataset.view;
said.first = selected();
await until(() => document.readyState === "complete");
await new Promise(done => setTimeout(done, 0));  // until then a new address takes the place of the one before
location.hash = "#Operators";
await until(() => selected() === "Operators");
document.querySelector("[data-view=Modules]").click();
said.address = location.hash;
history.back();
await until(() => selected() === "Operators");
said.text = view().querySelectorAll("tbody tr").length;
history.back();
await until(() => selected() === said.first);
history.forward();
await until(() => selected() === "Operators");
location.hash = "#no%20such%20tab";
await until(() => selected() === "Summary");
""", tmp_path, fragment="#Memory")
    assert said["first"] == "Memory" and said["address"] == "#Modules" and said["text"] > 5


def test_a_row_leads_to_its_place_in_the_timeline(page, tmp_path):
    said = visit(page, """
const go = async (tab, name) => {
  open(tab);
  const row = [...view().querySelectorAll("tbody tr")].find(e => e.firstChild.textContent.includes(name));
  const link = row.querySelector("a"), address = link.getAttribute("href");
  link.click();
  await until(() => view().querySelector(".one strong"));
  return { address, hash: location.hash, chosen: view().querySelector(".one strong").textContent, at: document.activeElement.tagName, shown: lane.to - lane.from, slice: lane.chosen.ns, all: data.timeline.views[lane.view].ns };
};
said.operator = await go("Operators", "aten::addmm");
said.module = await go("Modules", "Inner_of_the_page");
open("Modules");
said.tree = view().querySelectorAll(".modules a").length;
location.hash = said.operator.address;
await until(() => view().querySelector(".one strong"));
said.again = view().querySelector(".one strong").textContent;
""", tmp_path)
    assert said["operator"]["chosen"] == "aten::addmm" and "Inner_of_the_page" in said["module"]["chosen"] and said["again"] == "aten::addmm"
    for where in said["operator"], said["module"]:
        assert where["hash"] == where["address"] and where["at"] == "CANVAS" and \
            where["shown"] == min(max(50, 3 * where["slice"]), where["all"])
    assert said["tree"] >= 2


def test_the_flame_graph_has_the_steps_alone(page, tmp_path):
    said = visit(page, """
open("Flame graph");
const names = () => [...view().querySelectorAll(".flame button")].map(e => e.textContent);
const title = () => view().querySelector("h2").textContent;
said.all = [title(), names()];
document.getElementById("steps-only").click();
said.steps = [title(), names()];
const thread = data.flame.threads[0], span = data.report.tables.find(t => t.name === "step_times").rows.reduce((sum, row) => sum + (row.ns || 0), 0);
said.in_steps = thread.frames[0][5];
said.span = span;
said.sums = thread.frames.every((f, i) => !i || f.length === 5 || (f.length === 8 && f[5] <= f[2] && f[6] <= f[3] && f[7] <= f[4] && f[5] <= (thread.frames[f[0]][5] || 0)));
document.getElementById("steps-only").click();
said.back = [title(), names()];
""", tmp_path)
    (_, everything), (title, in_steps) = said["all"], said["steps"]
    assert any("before_the_steps" in name for name in everything) and not any("before_the_steps" in name for name in in_steps)
    assert any("train_of_the_page" in name for name in in_steps) and title.endswith("in steps")
    assert said["sums"] and said["back"] == said["all"]
    # All that runs in a step is inside of train_of_the_page().
    assert 0.9 * said["span"] <= said["in_steps"] <= 1.001 * said["span"]


def test_two_runs_stand_side_by_side(compared, tmp_path):
    said = visit(compared, """
said.title = document.title;
said.tabs = [...document.querySelectorAll("nav button")].map(e => e.dataset.view);
const [base, now] = view().querySelectorAll(".pair > div");
said.beside = base.getBoundingClientRect().right <= now.getBoundingClientRect().left && base.getBoundingClientRect().top === now.getBoundingClientRect().top;
said.base = base.textContent;
said.now = now.textContent;
said.charts = [base, now].map(e => e.querySelectorAll("svg.steps g.step").length);
said.limits = view().textContent;
open("Operators");
said.rows = [...view().querySelectorAll("tbody tr")].map(row => [...row.cells].map(e => e.textContent));
said.heads = [...view().querySelectorAll("th")].map(e => e.textContent);
""", tmp_path, "--window-size=1400,900")
    assert said["title"].endswith("twice against %s, torchprof diff, torchprof" % (compared.parent / "once"))
    assert said["beside"] and "program.py 1" in said["base"] and "program.py 2" in said["now"] and min(said["charts"]) >= 11
    assert said["tabs"][:3] == ["Summary", "Steps", "Operators"] and "Modules" in said["tabs"]
    assert "exceeded" in said["limits"]
    row, = (dict(zip(said["heads"], row)) for row in said["rows"] if row[0] == "aten::addmm")
    assert row["calls, base"] == "2" and row["calls, new"] == "4"


def test_it_works_in_the_frame_of_another_page_that_lets_it_have_no_address(page, tmp_path):
    """As in a notebook, and where a CI shows an artefact: no origin, no storage, and history refuses."""
    script = FRAME.replace("document.body.replaceChildren", "parent.postMessage(JSON.stringify(said), '*'); document.body.replaceChildren") % """
said.first = document.querySelector("[aria-selected=true]").dataset.view;
document.querySelector("[data-view=Operators]").click();
said.rows = view().querySelectorAll("tbody tr").length;
view().querySelector("tbody a").click();
await until(() => view().querySelector(".one strong"));
said.storage = (() => { try { return String(localStorage); } catch { return "refused"; } })();
said.address = (() => { try { history.replaceState(null, "", "#x"); return "given"; } catch { return "refused"; } })();
"""
    inner = page.read_text().replace("</body>", script).replace("&", "&amp;").replace('"', "&quot;")
    outer = tmp_path / "outer.html"
    outer.write_text('<body><script>onmessage = e => document.body.replaceChildren("SAID" + e.data + "DIAS");</script><iframe sandbox="allow-scripts" '
                     'style="width:1200px;height:800px" srcdoc="%s"></iframe></body>' % inner)
    said = said_in(chromium(tmp_path / "profile", "--virtual-time-budget=60000", "--dump-dom", outer.as_uri()))
    assert said["first"] == "Summary" and said["rows"] > 5 and (said["storage"], said["address"]) == ("refused", "refused")


def test_where_no_script_may_run_it_is_the_summary(page, tmp_path):
    """Jenkins shows artefacts so."""
    outer = tmp_path / "outer.html"
    text = page.read_text()
    summary = re.search(r"<noscript>.*?<pre>(.*?)</pre></noscript>", text, re.S)[1]
    assert "aten::addmm" in summary and "<" not in summary
    without = tmp_path / "without.html"
    without.write_text(text.replace(summary, ""))
    sizes = []
    for shown in page, without:
        outer.write_text('<body><iframe sandbox src="%s" style="border:0;width:800px;height:600px"></iframe></body>' % shown.as_uri())
        chromium(tmp_path / "profile", "--window-size=900,700", "--screenshot=%s" % (tmp_path / "shown.png"), outer.as_uri())
        sizes.append((tmp_path / "shown.png").stat().st_size)
    assert sizes[0] > 1.5 * sizes[1], "a picture with its text"
