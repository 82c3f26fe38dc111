"""Runs of programs that use the simulated GPU, and what is said of it. Tests import run_simulated, a fixture, by its name."""
import json
import re

import pytest

import spool_records as spool
from conftest import BUILD, SUPPORT

SIM = BUILD / "tests" / "cupti_sim" / "libcupti.so.12"
ONE_OF_EACH = {spool.KERNEL: 9, spool.COPY: 3, spool.SET: 1, spool.API: 20, spool.SYNC: 5, spool.EVENT: 1, spool.OVERHEAD: 1,
               spool.MEMORY: 2, spool.POOL: 1, spool.ENVIRONMENT: 1, spool.DEVICE: 2, spool.CONTEXT: 2}
EVERYTHING = "from simulated_gpu import everything; everything(); print('done')"


@pytest.fixture
def run_simulated(torch_python, program, run_torchprof, tmp_path):
    """Runs Python code that may use simulated_gpu, with every kind of record unless `gpu` says otherwise; gives the run and what the simulator says that it delivered, by process id."""
    def run(text, sim="", options=(), version="12.4", env=None, command=None, gpu="full"):
        assert SIM.exists(), "%s is not built" % SIM
        env = {"SIM": SIM, "PYTHONPATH": SUPPORT, "CUPTI_SIM": sim, "CUPTI_SIM_VERSION": version,
               "CUPTI_SIM_REPORT": tmp_path / "report", **(env or {})}
        run = run_torchprof(command or [torch_python, program(text)], options=["--gpu", gpu, *options], env=env)
        reports = {int(p.suffix[1:]): json.loads(p.read_text()) for p in tmp_path.glob("report.*")}
        return run, reports
    return run


def gpu_lines(run):
    """What is said of it, the summary apart."""
    return [line for line in run.stderr.splitlines()
            if line.startswith("torchprof: ") and ("GPU" in line or "CUPTI" in line) and not re.match(r"torchprof: \d+ process", line)]


def gpu_source(run):
    process, = json.loads((run.directory / "run.json").read_text())["processes"]
    return process["sources"].get("gpu")


def counts(found):
    return {kind: len(found[kind]) for kind in ONE_OF_EACH if found[kind]}
