"""The page of `report --html`, drawn by Chromium: what it shows, how it works with the keyboard, and that hostile names do no harm."""
import json
import re
import shutil
import subprocess
import sys

import pytest

from conftest import PATIENCE, clean_environment, profile

pytestmark = pytest.mark.once

PROGRAM = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner_layer = nn.Linear(64, 64)
    def forward(self, x): return self.inner_layer(x)
def train_of_the_page():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        model(torch.ones(32, 64)).sum().backward()
        optimizer.step()
with torch.autograd.profiler.record_function("</script><script>document.title='broken'</script><!--<script>"):
    train_of_the_page()
"""

# What a person does: a tab, a search, a frame, keys. It runs in a copy of the page, after the page's own script.
VISIT = """
<script>
{
const said = {};
const key = k => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: k, bubbles: true }));
const view = () => document.getElementById("view");
said.title = document.title;
for (const name of Object.keys(views)) { open(name); said[name] = view().textContent; }
open("Steps");
said.bars = view().querySelectorAll("svg.steps g.step").length;
open("Timeline");
said.slices = data.timeline.views[0].rows.reduce((sum, row) => sum + row.slices.length / 6, 0);
open("Memory");
said.memory = view().querySelectorAll("svg.memory path").length;
open("Flame graph");
said.frames = view().querySelectorAll(".flame button").length;
const wanted = [...view().querySelectorAll(".flame button")].find(e => e.textContent.endsWith(": train_of_the_page"));
wanted.focus();
said.status = document.getElementById("status").textContent;
wanted.click();
said.zoomed = view().querySelectorAll(".flame button")[0].textContent;
said.focus_kept = document.activeElement.textContent;
key("Escape");
said.out_again = view().querySelectorAll(".flame button").length === 0 ? "" : view().querySelectorAll(".flame button")[0].textContent;
document.querySelector("nav button").focus();
key("ArrowRight");
said.next_tab = document.activeElement.textContent;
key("/");
said.at_search = document.activeElement.id;
open("Operators");
document.getElementById("search").value = "ADDMM";
document.getElementById("search").dispatchEvent(new Event("input"));
said.found = [...view().querySelectorAll("tbody tr")].map(e => e.firstChild.textContent);
document.getElementById("search").value = "";
document.getElementById("search").dispatchEvent(new Event("input"));
[...view().querySelectorAll("th button")].find(e => e.textContent === "calls").click();
said.sorted = [...view().querySelectorAll("th")].find(e => e.getAttribute("aria-sort") === "descending").textContent;
document.body.replaceChildren(document.createTextNode("SAID" + JSON.stringify(said) + "DIAS"));
}
</script></body>"""


@pytest.fixture(scope="module")
def page(launcher, tmp_path_factory):
    directory = tmp_path_factory.mktemp("html")
    (directory / "program.py").write_text(PROGRAM)
    run = profile(launcher, directory / "run", [sys.executable, "program.py"], options=["-q"], cwd=directory)
    assert run.status == 0, run.stderr
    done = subprocess.run([launcher, "report", directory / "run", "--html", directory / "page.html"], capture_output=True, text=True,
                          env=clean_environment())
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return directory / "page.html"


@pytest.fixture
def chromium(tmp_path):
    """chromium(ARG...) on a profile of its own. The releases without it have the page's data read alone."""
    def run(*arguments):
        done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=%s" % (tmp_path / "profile"), *map(str, arguments)],
                              capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout
    return run


def said_by(script, page, chromium, tmp_path, *options):
    visited = tmp_path / "visited.html"
    visited.write_text(page.read_text().replace("</body>", script))
    body = chromium(*options, "--dump-dom", visited.as_uri()).rpartition("<body>")[2]
    return json.loads(re.search(r"SAID(.*)DIAS", body, re.S)[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


needs_chromium = pytest.mark.skipif(not shutil.which("chromium"), reason="tests in a browser run where Debian's chromium is installed")


def test_the_page_holds_all_of_its_data_and_fetches_nothing(page):
    text = page.read_text()
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])
    assert "<" not in re.search(r'id="data">(.*?)</script>', text, re.S)[1]
    assert text.count("<script") == text.count("</script>") == 2
    assert not re.search(r"(src|href)=|https?://(?!www\.w3\.org/2000/svg)", text.partition('id="data">')[0] + text.rpartition("</script>\n<script>")[2])
    assert "default-src 'none'" in text
    ops = [row["name"] for table in data["report"]["tables"] if table["name"] == "ops" for row in table["rows"]]
    assert "aten::addmm" in ops and any(name.startswith("</script>") for name in ops)
    frames = data["flame"]["threads"][0]["frames"]
    assert all(frame[0] < i and frame[2] <= frames[frame[0]][2] for i, frame in enumerate(frames) if i)


@needs_chromium
def test_a_browser_shows_it_and_keys_work(page, chromium, tmp_path):
    said = said_by(VISIT, page, chromium, tmp_path)
    assert said["title"].endswith(", torchprof") and "broken" not in said["title"]
    assert said["bars"] == 6 and said["memory"] >= 1 and said["frames"] > 20
    assert "aten::addmm" in said["Operators"] and "inner_layer" in said["Modules"] and "train_of_the_page" in said["Python"]
    assert "GPUs" not in said, "a tab without anything in it"
    assert said["slices"] > 20 and said["Timeline"].startswith("Timeline")
    assert re.search(r"train_of_the_page, .* own .* 1 calls", said["status"])
    assert said["zoomed"].endswith(": train_of_the_page") and said["focus_kept"] == said["zoomed"]
    assert said["out_again"].startswith("</script><script>")
    assert (said["next_tab"], said["at_search"], said["sorted"]) == ("Timeline", "search", "calls")
    assert said["found"] and all("addmm" in name.lower() for name in said["found"])


# More steps than V8 takes as arguments of a call, and steps of a window in two ranks.
STEPS = """
<script>
{
const said = {}, times = data.report.tables.find(t => t.name === "step_times");
const titles = () => [...document.querySelectorAll("svg.steps g.step title")].map(e => e.textContent);
data.report.tables.push({ name: "processes", title: "", columns: [], rows: [{ pid: "7", role: "rank 0" }, { pid: "8", role: "" }] });
times.rows = ["7", "8"].flatMap(pid => [10, 11].map(step => ({ pid, step, ns: 1e6 * step })));
open("Steps");
said.few = titles();
times.rows = Array.from({ length: 250000 }, (_, step) => ({ pid: "7", step, ns: step === 1001 ? 5e6 : 1e6 }));
open("Steps");
said.many = titles();
said.bars = titles().length;
data.memory = [{ label: "cpu", ns: 1, bytes: Array(250000).fill(5) }];
open("Memory");
said.memory = document.querySelector("svg.memory text").textContent;
document.body.replaceChildren(document.createTextNode("SAID" + JSON.stringify(said) + "DIAS"));
}
</script></body>"""


@needs_chromium
def test_a_step_has_its_own_number_and_process_and_there_may_be_very_many(page, chromium, tmp_path):
    said = said_by(STEPS, page, chromium, tmp_path)
    assert said["few"] == ["step 10 of rank 0: 10.00 ms", "step 11 of rank 0: 11.00 ms", "step 10 of process 8: 10.00 ms", "step 11 of process 8: 11.00 ms"]
    each = -(-250_000 // said["bars"])  # the last bar may have fewer
    at = 1001 // each
    assert 20 <= said["bars"] <= 1000 and said["many"][1] == "step %d to %d of rank 0: at most %s ms" % (each, 2 * each - 1, "5.00" if at == 1 else "1.00")
    assert said["many"][at] == "step %d to %d of rank 0: at most 5.00 ms" % (at * each, at * each + each - 1) and said["memory"] == "5 B"


@needs_chromium
@pytest.mark.parametrize("scheme, background", [(1, "rgb(255, 255, 255)"), (0, "rgb(13, 17, 23)")], ids=["light", "dark"])
def test_it_is_dark_where_the_reader_wants_it_dark(page, chromium, tmp_path, scheme, background):
    script = "<script>document.body.replaceChildren('SAID' + JSON.stringify(getComputedStyle(document.body).backgroundColor) + 'DIAS');</script></body>"
    assert said_by(script, page, chromium, tmp_path, "--blink-settings=preferredColorScheme=%d" % scheme) == background


@needs_chromium
@pytest.mark.parametrize("fragment, view", [("Flame%20graph", "Flame graph"), ("toString", "Summary"), ("%", "Summary")])
def test_an_address_names_a_view_or_is_passed_over(page, chromium, fragment, view):
    shown = chromium("--dump-dom", page.as_uri() + "#" + fragment).rpartition('<nav id="tabs"')[2]
    assert re.findall(r'<button role="tab"[^>]* aria-selected="true"[^>]*>([^<]*)<', shown) == [view]


@needs_chromium
def test_a_browser_draws_it(page, chromium, tmp_path):
    chromium("--window-size=1200,800", "--screenshot=%s" % (tmp_path / "page.png"), page.as_uri())
    assert (tmp_path / "page.png").stat().st_size > 20_000  # an empty page has 5,000


def test_a_trace_without_raw_records_has_tables_and_says_what_is_missing(page, torchprof, tmp_path):
    trace, = (page.parent / "run").glob("trace.json.gz")
    assert torchprof("report", trace, "--html", tmp_path / "trace.html").returncode == 0
    data = json.loads(re.search(r'id="data">(.*?)</script>', (tmp_path / "trace.html").read_text(), re.S)[1])
    assert data["flame"] is None and any(table["rows"] for table in data["report"]["tables"])


def test_it_takes_no_other_options(page, torchprof, tmp_path):
    done = torchprof("report", page.parent / "run", "--html", tmp_path / "x.html", "--json")
    assert (done.returncode, done.stderr) == (125, "torchprof: report: --html, --open and --serve write all tables and take no other options than --align, --all-processes, --jobs, --step and --waits\n")
