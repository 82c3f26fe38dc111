"""What a table of many ranks costs: memory grows with names, steps and ranks, and not with the raw records, whatever the page cache looks like."""
import json
import subprocess
import sys

import pytest

import many_ranks
from conftest import SUPPORT, profile

pytestmark = pytest.mark.once

FEW, MANY = 8, 64
# Without gloo they have nothing in common, and their hosts' clocks would not be aligned: that reads all of them once more.
TRAIN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(120):
    optimizer.zero_grad()
    model(torch.ones(8, 16)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def runs(launcher, torch_python, tmp_path_factory):
    """Directories of FEW and of MANY ranks, and the bytes of raw records that MANY has more."""
    directory = tmp_path_factory.mktemp("ranks")
    (directory / "train.py").write_text(TRAIN)
    run = profile(launcher, directory / "run", [torch_python, SUPPORT / "ranks.py", "2", directory / "train.py"], options=["-w", "all", "--format", "none"])
    assert run.status == 0, run.stderr
    few = many_ranks.make(run.directory, directory / "few", FEW)
    many = many_ranks.make(run.directory, directory / "many", MANY)
    return directory / "few", directory / "many", many - few


def peak(command):
    """What a command printed, and the most bytes of memory that it had. A small Python starts it: the kernel counts what its parent had, too."""
    done = subprocess.run([sys.executable, "-S", "-c", "import resource, subprocess, sys\nstatus = subprocess.call(sys.argv[1:])\n"
                           "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)\nsys.exit(status)", *map(str, command)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, int(done.stderr.splitlines()[-1]) * 1024


@pytest.mark.parametrize("table", ["ops", "steps", "comms"])
def test_memory_does_not_grow_with_the_raw_records(runs, launcher, table):
    few, many, more = runs
    command = [launcher, "report", "-j", "2", "-t", table]
    (_, of_few), (text, of_many) = peak([*command, few]), peak([*command, many])
    assert "%d processes" % MANY in text and "%d hosts on one clock" % (MANY // 8) in text
    assert of_many - of_few < 0.5 * more, (of_few, of_many, more)


def test_a_made_run_has_the_ranks_that_were_asked_for(runs, torchprof):
    _, many, _ = runs
    table, = json.loads(torchprof("report", many, "-t", "processes", "--json").stdout)["tables"]
    assert sorted(row["rank"] for row in table["rows"]) == list(range(MANY))
    assert len({row["host"] for row in table["rows"]}) == MANY // 8
