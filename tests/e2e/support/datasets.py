"""Runs whose datasets (`export --format parquet`) are looked at. Tests import the fixtures by their names."""
import sqlite3
import subprocess

import pytest

from conftest import SUPPORT, profile

TRAINING = """
import os, subprocess, sys, threading, torch
if len(sys.argv) == 1:
    for rank in "01": subprocess.run([sys.executable, __file__, "rank"], env={**os.environ, "RANK": rank, "WORLD_SIZE": "2"}, check=True)
    sys.exit()
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    with torch.autograd.profiler.record_function("a \\u2028 range, \\x1b[31m"):
        model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
for _ in range(12): step()
thread = threading.Thread(target=lambda: [torch.ones(n % 7 + 1) + 1 for n in range(int(os.environ["MANY"]))])
thread.start()
thread.join()
"""


@pytest.fixture(scope="module")
def dataset(launcher, torch_python, tmp_path_factory):
    """(the run, its dataset): two ranks and their launcher, the second rank's slices in several row groups."""
    directory = tmp_path_factory.mktemp("dataset")
    (directory / "train.py").write_text(TRAINING)
    run = profile(launcher, directory / "run", [torch_python, directory / "train.py"], env={"MANY": "50000"}, options=["-q", "--format", "sqlite"])
    assert run.status == 0, run.stderr
    done = subprocess.run([launcher, "export", run.directory, "--format", "parquet", "-o", directory / "out"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.endswith("torchprof: %s: written\n" % (directory / "out")), done.stderr
    return run, directory / "out"


@pytest.fixture(scope="module")
def database(dataset):
    return sqlite3.connect(dataset[0].directory / "trace.sqlite")


def rows(columns, *names):
    return list(zip(*(columns[name] for name in names)))


TALK = """
import time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, small, large = dist.get_rank(), torch.ones(8), torch.ones(64, dtype=torch.float64)
for step in range(20):
    time.sleep(0.02 * (rank == step % 3))
    dist.all_reduce(small)
    dist.broadcast(large, 0)
    if rank == 0: dist.send(small, 2)
    if rank == 2: dist.recv(small, 0)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def talked(launcher, torch_python, tmp_path_factory):
    """A job of three ranks that talk to each other."""
    directory = tmp_path_factory.mktemp("talk")
    (directory / "talk.py").write_text(TALK)
    run = profile(launcher, directory / "run", [torch_python, SUPPORT / "ranks.py", 3, directory / "talk.py"], options=["-q", "--format", "table"],
                  env={"GLOO_SOCKET_IFNAME": "lo"})
    assert run.status == 0, run.stderr
    return run.directory
