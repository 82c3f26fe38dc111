"""Memory that a program's steps leave behind, and that of each line of Python."""
import json

import pytest

pytestmark = pytest.mark.once

PROGRAM = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.Adam(net.parameters())
kept, cache = [], {}
def keep(x):
    kept.append(x.clone())
def step(i):
    x = torch.randn(512, 64)
    if i %% 4 not in cache:
        cache[i %% 4] = torch.zeros(1 << 15)
    loss = net(x).pow(2).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    %s
for i in range(12):
    step(i)
kept.clear()
"""


def tables(torchprof, run):
    done = torchprof("report", run.directory, "-t", "memory", "--json")
    assert run.status == 0 and done.returncode == 0, run.stderr + done.stderr
    return {table["name"]: table["rows"] for table in json.loads(done.stdout)["tables"]}


@pytest.fixture
def profiled(run_torchprof, program, torch_python, torchprof):
    def run(text):
        run = run_torchprof([torch_python, program(text)])
        return tables(torchprof, run), run
    return run


def test_what_each_step_keeps_is_found_with_its_line_though_the_end_frees_it(profiled, torchprof):
    found, run = profiled(PROGRAM % "keep(x)")
    most = found["memory_growth"][0]
    assert (most["outer_op"], most["place"], most["steps"], most["blocks"]) == ("aten::clone", "program.py(7): keep", 9, 9)
    assert most["bytes"] == 9 * 512 * 64 * 4 and most["step_bytes"] == 512 * 64 * 4
    text = torchprof("report", run.directory, "-t", "memory").stdout
    assert "Memory that stays, step after step" in text and "a step that were not freed 2 steps later" in text


def test_a_graph_that_a_loss_keeps_is_found_with_its_modules(profiled):
    found, _ = profiled(PROGRAM.replace("loss.backward()", "loss.backward(retain_graph=True)") % "kept.append(loss)")
    assert any("(1)" in (row["module"] or "") for row in found["memory_growth"])


def test_a_program_that_keeps_nothing_has_nothing_that_stays(profiled, torchprof):
    found, run = profiled(PROGRAM % "kept[:] = [x]")
    assert found["memory_growth"] == []
    assert "Memory that stays" not in torchprof("report", run.directory, "-t", "memory").stdout


def test_each_line_has_what_it_asked_for_and_what_of_it_lived_at_the_peak(profiled):
    found, _ = profiled("""
import torch
def both():
    a = torch.ones(1 << 16)
    b = torch.ones(1 << 17)
for _ in range(3):
    both()
""")
    lines = {row["name"]: (row["bytes"], row["allocated_bytes"], row["allocations"]) for row in found["memory_lines"]}
    assert lines["program.py(4): both"] == (1 << 18, 3 << 18, 3)
    assert lines["program.py(5): both"] == (1 << 19, 3 << 19, 3)
