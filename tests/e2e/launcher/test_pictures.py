"""The pictures and the demo of the documents are those of today: what they show has the headings and columns of a fresh run. If not: packaging/pictures."""
import gzip
import importlib.machinery
import importlib.util
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree

import pytest

from conftest import PATIENCE, ROOT, clean_environment

pytestmark = pytest.mark.once

PICTURES, DEMO = ROOT / "docs" / "pictures", ROOT / "docs" / "demo"
README = (ROOT / "README.md").read_text()
loader = importlib.machinery.SourceFileLoader("pictures", str(ROOT / "packaging" / "pictures"))
pictures = importlib.util.module_from_spec(importlib.util.spec_from_loader("pictures", loader))
loader.exec_module(pictures)

TABLES = re.compile(r"[A-Z][a-z]+( [a-z]+)*( by [a-z ]+)?")


def columns_of(said):
    """{heading: names of columns} of the tables of a summary, but for the column that the widths of numbers leave room for, or not."""
    lines = [re.sub(r"\x1b\[\d*[mK]", "", line.rpartition("\r\x1b[K")[2]) for line in said.replace("\r\n", "\n").split("\n")]
    found = {}
    for heading, names in zip(lines, lines[1:]):
        heading = heading.partition(":")[0]
        if TABLES.fullmatch(heading) and re.fullmatch(r" +\S.*", names) and not re.search(r"\d\.\d| \d", names):
            found[heading] = [name for name in re.split(r" {2,}", names.strip()) if name != "GFLOPs"]
    return found


def picture(name):
    """The text of one, and what it says: as a reader of screens has it, it has a title and a description."""
    svg = (PICTURES / name).read_text()
    root = xml.etree.ElementTree.fromstring(svg)
    assert root.get("role") == "img" and root.get("aria-labelledby") == "title desc"
    assert all(len(root.find("{http://www.w3.org/2000/svg}%s[@id='%s']" % (kind, kind)).text) > 10 for kind in ("title", "desc"))
    assert "prefers-color-scheme: dark" in svg
    return svg, pictures.text_of(svg)


@pytest.fixture(scope="module")
def place(tmp_path_factory, launcher, torch_python):
    """Where the commands of packaging/pictures have been typed: the directory, the environment, and what the run has said."""
    place = tmp_path_factory.mktemp("demo")
    env = clean_environment(pictures.make_place(place, launcher, torch_python))
    return place, env, pictures.on_a_terminal(pictures.RUN, place, env)


def test_the_picture_of_a_run_has_the_tables_that_a_run_has(place):
    svg, shown = picture("run.svg")
    said = place[2].replace("\r\n", "\n")
    assert ">$ %s<" % pictures.RUN in svg
    tables, todays = columns_of(shown), columns_of(said)
    assert {"Advice", "Operators by self time", "Modules by total time", "Steps"} <= set(tables)
    # On a busy machine there may be no finding, or another one.
    assert tables == {"Advice": ["costs", "of a step", "without", "finding"], **todays}, "packaging/pictures makes it again"
    for line in "torchprof: 2 processes, .*: .* operators, .* Python calls", r"process \d+, DataLoader worker 0: .*", "more: torchprof report .*", "trace: .*", "open it in .*":
        assert len(re.findall("(?m)^%s$" % line, shown)) == len(re.findall("(?m)^%s$" % line, said)) == 1, line
    for words in "A step waits", "for a DataLoader", "starving.py(21): ":
        assert words in re.sub(r"\s+", " ", shown), words


def test_the_readme_shows_what_the_picture_shows():
    assert README == pictures.into_readme(README, picture("run.svg")[1])
    shown = re.search(r"(?ms)^    \$ %s\n(.*?)\n^\S" % re.escape(pictures.RUN), README)[1]
    assert "A step waits" in shown and "    trace: " in shown


def test_the_picture_of_top_has_what_top_shows(place):
    svg, shown = picture("top.svg")
    assert ">$ %s<" % pictures.TOP in svg and re.search('<tspan class="red">rank 1 ', svg)
    said = re.sub(r"\x1b\[\d*m|\r", "", pictures.make_top(*place[:2]))
    for line in (r"torchprof top ranks: \d process(es)?", "steps  .*", " +step  waits  allocated   resident", "rank 1 .* slowest .*", "Operators by self time, .*",
                 "Python functions by self time, .*"):
        assert re.search("(?m)^%s$" % line, shown) and re.search("(?m)^%s$" % line, said), line


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)[1])


def test_the_page_of_the_demo_has_the_tables_of_a_page_of_today(place, launcher, tmp_path):
    subprocess.run([launcher, "report", place[0] / "starving", "--html", tmp_path / "page.html"], check=True, env=clean_environment(), timeout=PATIENCE)
    theirs, ours = (data_of(page) for page in (DEMO / "starving.html", tmp_path / "page.html"))
    assert theirs.keys() == ours.keys()
    tables = [{table["name"]: [column["key"] for column in table["columns"]] for table in data["report"]["tables"]} for data in (theirs, ours)]
    assert tables[0] == tables[1], "packaging/pictures makes it again"
    assert any("brighten" in json.dumps(table["rows"]) for table in theirs["report"]["tables"])


@pytest.mark.skipif(not shutil.which("chromium"), reason="tests in a browser run where Debian's chromium is installed")
def test_a_browser_opens_the_page_of_the_demo(tmp_path):
    done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=%s" % (tmp_path / "profile"), "--dump-dom",
                           (DEMO / "starving.html").as_uri() + "#Operators"], capture_output=True, text=True, timeout=PATIENCE)
    assert re.search(r'aria-selected="true"[^>]*>Operators<', done.stdout) and "aten::addmm" in done.stdout, done.stderr


def test_the_trace_of_the_demo_opens(torchprof):
    path = DEMO / "starving.json.gz"
    names = {event.get("name") for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]}
    assert "aten::addmm" in names and any(re.fullmatch(r"starving\.py\(\d+\): brighten", str(name)) for name in names), names
    done = torchprof("report", path, "-t", "ops,steps")
    assert done.returncode == 0 and "aten::addmm" in done.stdout, done.stderr


def test_they_are_small_and_nothing_else_lies_there():
    assert {path.name for path in PICTURES.iterdir()} == {"run.svg", "top.svg", "page.webp", "page-dark.webp", "perfetto.webp"}
    assert {path.name for path in DEMO.iterdir()} == {"starving.html", "starving.json.gz"}
    assert sum(path.stat().st_size for folder in (PICTURES, DEMO) for path in folder.iterdir()) < 800_000
    for name in "page.webp", "page-dark.webp", "perfetto.webp":
        data = (PICTURES / name).read_bytes()
        assert (data[:4], data[8:12]) == (b"RIFF", b"WEBP") and len(data) > 20_000  # an empty page has less
