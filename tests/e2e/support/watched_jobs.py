"""Jobs under torchprof that are looked at while they run."""
import contextlib
import os
import signal
import subprocess
import time

from conftest import PATIENCE, clean_environment

TRAIN = """
import os, sys, time, torch
from torch.utils.data import DataLoader
net = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
step = 0
while not os.path.exists("end"):
    for batch in DataLoader(torch.ones(40, 64), batch_size=8):
        net(batch).sum().backward()
        optimizer.step()
        time.sleep(0.004)
        step += 1
        if step == 50: print("ready\\n", end="", flush=True)
"""


def until(wanted, *, job=None):
    """Asks again until it is true, and gives that."""
    deadline = time.monotonic() + PATIENCE
    while not (found := wanted()):
        assert time.monotonic() < deadline and (job is None or job.poll() is None), wanted
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def started(*line, cwd, **more):
    with subprocess.Popen(list(map(str, line)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
                          env=clean_environment({"GLOO_SOCKET_IFNAME": "lo"}), start_new_session=True, **more) as job:
        try:
            yield job
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)


@contextlib.contextmanager
def training(launcher, torch_python, tmp_path, *options):
    """A job that has made 50 steps and goes on until the file `end` is there."""
    (tmp_path / "train.py").write_text(TRAIN)
    with started(launcher, "run", "-q", "--format", "none", "-o", tmp_path / "run", *options, "--", torch_python, "train.py", cwd=tmp_path) as job:
        assert job.stdout.readline() == "ready\n"
        yield job
