"""Two runs beside each other: the same program twice passes the gate, one that got slower fails it and is told where."""
import json
import re
import sys
import xml.etree.ElementTree

import pytest

from conftest import profile

pytestmark = pytest.mark.once

# `extra`: calls of cumsum in each step. Limits are wide and differences huge: CI's machines are loaded.
TRAIN = """
import sys, torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(32, 32), nn.Linear(32, 4)
    def forward(self, x):
        y = self.first(x)
        with torch.no_grad():
            for _ in range(int(sys.argv[1])):
                torch.cumsum(x, 1)
        return self.last(torch.relu(y))
def train():
    torch.set_num_threads(1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(14):
        optimizer.zero_grad()
        model(torch.ones(8, 32)).sum().backward()
        optimizer.step()
train()
"""


@pytest.fixture(scope="module")
def runs(launcher, tmp_path_factory):
    """{name: run directory}: `slow` differs from `base` and `again` in how often it calls cumsum: by more in a step than a busy machine adds to others."""
    directory = tmp_path_factory.mktemp("diff")
    program = directory / "train.py"
    program.write_text(TRAIN)
    for name, extra in (("base", 1), ("again", 1), ("slow", 5000)):
        run = profile(launcher, directory / name, [sys.executable, program, extra], options=["-q"] + ["--discard"] * (name != "base"))
        assert run.status == 0, run.stderr
    return {name: directory / name for name in ("base", "again", "slow")}


def test_the_same_program_twice_passes(runs, torchprof):
    done = torchprof("diff", runs["base"], runs["again"], "--fail-over", 1000, "--metric", "step,total,ops,modules")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^Limits: \d+ checks, none past its limit$", done.stdout, re.M)
    done = torchprof("diff", runs["base"], runs["again"], "--fail-over", 0, "--metric", "calls")
    assert done.returncode == 0, done.stdout


def test_a_slower_operator_fails_and_is_named(runs, torchprof, tmp_path):
    junit = tmp_path / "junit.xml"
    done = torchprof("diff", runs["base"], runs["slow"], "--fail-over", 1000, "--metric", "ops,calls", "--junit", junit)
    assert done.returncode == 1, done.stderr
    assert re.search(r"^  ops: aten::cumsum: self time per step .*, p <0\.001, limit 1000 %$", done.stdout, re.M), done.stdout
    assert re.search(r"^  calls: aten::cumsum: calls per step 1 -> 5000, \+499900\.0 %, limit 1000 %$", done.stdout, re.M)
    operators, = re.findall(r"^Operators by .*\n.*\n(.*)\n", done.stdout, re.M)
    assert operators.endswith("aten::cumsum") and " slower " in operators
    failed = {case.get("name") for case in xml.etree.ElementTree.parse(junit).iter("testcase") if case.find("failure") is not None}
    assert "aten::cumsum" in failed and "aten::addmm" not in failed


def test_without_a_limit_it_only_shows(runs, torchprof):
    done = torchprof("diff", runs["base"], runs["slow"])
    assert done.returncode == 0 and "Limits" not in done.stdout


def test_a_job_summary_in_markdown(runs, torchprof):
    done = torchprof("diff", runs["base"], runs["slow"], "--fail-over", 1000, "--metric", "calls", "--markdown")
    assert done.returncode == 1
    assert "- **calls** `aten::cumsum` calls per step 1 -> 5000, +499900.0 %, limit 1000 %" in done.stdout
    assert re.search(r"^\| .* \| `aten::cumsum` \|$", done.stdout, re.M)


def test_a_budget(runs, torchprof, tmp_path):
    budget = tmp_path / "budget.json"
    budget.write_text(json.dumps({"step": "10m", "ops": {"aten::cumsum": {"calls": 100}}, "memory": {"CPU": "1T"}}))
    done = torchprof("diff", runs["base"], runs["slow"], "--budget", budget)
    assert done.returncode == 1
    assert "  budget: calls: aten::cumsum: calls 5000, budget 100\n" in done.stdout
    assert torchprof("diff", runs["slow"], runs["again"], "--budget", budget).returncode == 0


def test_spools_and_traces_say_the_same(runs, torchprof):
    trace, = runs["base"].glob("trace.json.gz")
    done = torchprof("diff", runs["base"], trace, "--fail-over", 1, "--metric", "step,ops,modules,calls,memory", "-n", 1000)
    assert done.returncode == 0, done.stdout
    operators = re.findall(r"^ .*  (aten::\S+)$", done.stdout, re.M)
    assert "aten::cumsum" in operators and not re.search(r" (new|gone) .*  aten::", done.stdout), done.stdout


@pytest.mark.parametrize("arguments, complaint", [
    (["{base}"], "diff: NEW is required; see `torchprof help diff`"),
    (["{base}", "/nowhere"], "/nowhere: No such file or directory"),
    (["{base}", "{again}", "--fail-over", "x"], "diff: --fail-over: 'x' is not a percentage of 0 or more; see `torchprof help diff`"),
    (["{base}", "{again}", "--metric", "ops"], "diff: --metric needs --fail-over; see `torchprof help diff`"),
    (["{base}", "{again}", "--fail-over", "5", "--metric", "speed"],
     "diff: --metric: 'speed' is not a metric: step, total, ops, modules, kernels, cuda, python, calls, allocated, memory"),
    (["{base}", "{again}", "--budget", "/nowhere"], "budget /nowhere: No such file or directory"),
])
def test_what_cannot_be_compared_is_125_and_one_line(runs, torchprof, arguments, complaint):
    done = torchprof("diff", *[str(a).format(**runs) for a in arguments])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == "torchprof: %s\n" % complaint
