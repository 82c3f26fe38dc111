"""The page of `report --html` and that of `diff --html` break no rule of accessibility that axe-core knows, in any tab, light or dark."""
import subprocess
import sys

import pytest

from accessibility import FAULTS, axe_source
from browser import needs_chromium, visit
from conftest import ROOT, clean_environment, profile

pytestmark = [pytest.mark.once, needs_chromium]


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    return axe_source(tmp_path_factory.mktemp("axe") / "env")


@pytest.fixture(scope="module")
def pages(launcher, tmp_path_factory):
    directory = tmp_path_factory.mktemp("accessible")
    for name in "base", "new":
        run = profile(launcher, directory / name, [sys.executable, ROOT / "examples" / "transformer.py", "--steps", "12"], options=["-q"], cwd=directory)
        assert run.status == 0, run.stderr
    for command in ["report", "base", "--html", "report.html"], ["diff", "base", "new", "--html", "diff.html"]:
        done = subprocess.run([launcher, *command], cwd=directory, capture_output=True, text=True, env=clean_environment())
        assert done.returncode == 0, done.stderr
    return directory


@pytest.mark.parametrize("scheme", [1, 0], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["report", "diff"])
def test_no_tab_has_a_fault(pages, axe, tmp_path, name, scheme):
    with_axe = tmp_path / "axe.html"
    with_axe.write_text((pages / (name + ".html")).read_text().replace("</body>", "<script>%s</script></body>" % axe))
    said = visit(with_axe, FAULTS + """
said.faults = {};
said.dark = getComputedStyle(document.body).backgroundColor !== "rgb(255, 255, 255)";
for (const name of Object.keys(views)) {
  open(name);
  await new Promise(done => setTimeout(done, 50));
  said.faults[name] = await faults();
}
open("Operators");
type("add");
said.faults.search = await faults();
// A test that cannot fail is none.
view().append(make("button", { style: "color:#fff;background:#fff" }));
said.planted = (await faults()).map(fault => fault[0]);
""", tmp_path, "--blink-settings=preferredColorScheme=%d" % scheme, "--window-size=1200,900")
    assert said["dark"] == (scheme == 0) and "button-name" in said["planted"]
    assert {tab: faults for tab, faults in said["faults"].items() if faults} == {}
