"""The page and the comparison of runs that use the simulated GPU, in two ranks."""
import json
import re
import subprocess

import pytest

from conftest import clean_environment
from simulated_runs import run_simulated  # noqa: F401  the fixture
from test_html import chromium, needs_chromium  # noqa: F401  the fixture

pytestmark = pytest.mark.once

TRAIN = """
import torch
from simulated_gpu import sim
sim.simInit(1)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
    def forward(self, x):
        with torch.profiler.record_function("launching"):
            for _ in range(%d):
                sim.simLaunch(b"_Z11slow_kernelPf", 7, 20000)
            sim.simLaunch(b"_Z12other_kernelv", 7, 1000)
        return self.weight * x
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    net(torch.ones(4)).sum().backward()
    sim.simDeviceSynchronize()
    optimizer.step()
"""
# What a person sees in some views of the page.
VISIT = """<script>
{
const said = {};
for (const name of ["Summary", "GPUs", "Processes", "Memory", "Flame graph"]) { open(name); said[name] = document.getElementById("view").textContent; }
document.body.replaceChildren(document.createTextNode("SAID" + JSON.stringify(said) + "DIAS"));
}
</script></body>"""


@pytest.fixture
def ranks(run_simulated, torch_python, program):  # noqa: F811
    """A run of two ranks with a GPU each."""
    script = 'RANK=0 "$0" "$1" & RANK=1 "$0" "$1"; wait $!'
    run, _ = run_simulated("", command=["sh", "-c", script, torch_python, program(TRAIN % 3)], env={"WORLD_SIZE": 2}, options=["-q"])
    assert run.status == 0, run.stderr
    return run


def page_of(launcher, run, file):
    done = subprocess.run([launcher, "report", run.directory, "--html", file], capture_output=True, text=True, env=clean_environment())
    assert done.returncode == 0, done.stderr
    return file.read_text()


def test_the_page_has_the_kernels_and_processes_of_both_ranks(launcher, ranks, tmp_path):
    text = page_of(launcher, ranks, tmp_path / "page.html")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    tables = {table["name"]: table["rows"] for table in data["report"]["tables"]}
    assert {row["name"]: row["calls"] for row in tables["kernels"]} == {"slow_kernel(float*)": 60, "other_kernel()": 20}
    assert sorted(row["role"] for row in tables["processes"]) == ["rank 0", "rank 1"]
    assert len({row["pid"] for row in tables["gpus"]}) == 2
    for part in data["flame"]["threads"], data["memory"]:
        for rank in "rank 0", "rank 1":
            assert any(rank in entry["label"] for entry in part), rank


@needs_chromium
def test_a_browser_shows_them(launcher, ranks, chromium, tmp_path):  # noqa: F811
    visited = tmp_path / "visited.html"
    visited.write_text(page_of(launcher, ranks, tmp_path / "page.html").replace("</body>", VISIT))
    said = json.loads(re.search(r"SAID(.*)DIAS", chromium("--dump-dom", visited.as_uri()).rpartition("<body>")[2], re.S)[1]
                      .replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert "slow_kernel" in said["GPUs"] and "other_kernel" in said["GPUs"]
    assert "slow_kernel(" not in said["GPUs"], "the whole name is shown where one points"
    for view in "Processes", "Memory", "Flame graph":
        assert "rank 0" in said[view] and "rank 1" in said[view], view


def test_a_slower_kernel_fails_the_comparison_and_is_named(run_simulated, torchprof):  # noqa: F811
    base, slow = (run_simulated(TRAIN % launches, options=["-q"])[0] for launches in (3, 60))
    done = torchprof("diff", base.directory, slow.directory, "--fail-over", 300, "--metric", "kernels")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^  kernels: slow_kernel\(float\*\): .*limit 300 %$", done.stdout, re.M), done.stdout
    assert not re.search(r"^  kernels: other_kernel", done.stdout, re.M), done.stdout
    done = torchprof("diff", base.directory, base.directory, "--fail-over", 0, "--metric", "kernels")
    assert done.returncode == 0 and "slow_kernel(float*)" in done.stdout, done.stdout
