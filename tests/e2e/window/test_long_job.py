"""A long job in which things are planted (tests/bench/long_job.py), with the default options: what it costs on the disk, and what the summary names."""
import gzip
import json
import re

import pytest
from conftest import ROOT, SUPPORT

LONG_JOB = ROOT / "tests" / "bench" / "long_job.py"


@pytest.mark.slow
@pytest.mark.timed
def test_what_is_planted_in_a_long_job_is_captured_and_named(torch_python, run_torchprof):
    run = run_torchprof([torch_python, LONG_JOB, 3000, 2], timeout=900)
    assert run.status == 0, run.stderr
    # Lines are broken at spaces.
    summary = " ".join(line.strip() for line in run.stderr.splitlines())
    assert re.search(r" 3,000 +\d+ ", summary), summary
    assert re.search(r"in long_job.py\(\d+\): slow_batch", summary), summary
    assert re.search(r"step 1008: [^;]*; \+\S+ ms a step in long_job.py\(\d+\): evaluate", summary), summary
    grows = re.search(r"the process's memory grows by (\S+) KiB a step", summary)
    assert grows and 9 < float(grows.group(1)) < 20, summary
    windows = json.loads((run.directory / "run.json").read_text())["processes"][0]["windows"]
    assert sum(w["reason"] == "typical" for w in windows) >= 2, windows  # on a busy machine they are few
    files = [path for path in run.directory.rglob("*") if path.is_file()]
    assert sum(path.stat().st_blocks * 512 for path in files) < 100e6, [(path.name, path.stat().st_size) for path in files]
    with gzip.open(run.directory / "trace.json.gz", "rt") as lines:
        slices = sum(line.startswith('{"ph":"X"') for line in lines)
    # The budget is a million events, and each window is whole: the last one may go beyond it.
    assert 100_000 < slices < 1_100_000


def test_the_rank_that_others_wait_for_is_named(torch_python, run_torchprof):
    run = run_torchprof([torch_python, SUPPORT / "ranks.py", 2, "%s 150 1" % LONG_JOB], options=["--budget-events", "100K"])
    assert run.status == 0, run.stderr
    assert re.search(r"gloo:all_reduce: the others wait for rank 1, \d+\.\d % of their steps' time", run.stderr), run.stderr


@pytest.mark.slow
def test_four_ranks_have_the_same_windows_and_the_slow_one_is_named(torch_python, run_torchprof):
    run = run_torchprof([torch_python, SUPPORT / "ranks.py", 4, "%s 400 1" % LONG_JOB], options=["--budget-events", "100K"], timeout=900)
    assert run.status == 0, run.stderr
    assert re.search(r"gloo:all_reduce: the others wait for rank 3, \d+\.\d % of their steps' time", run.stderr), run.stderr
    processes = json.loads((run.directory / "run.json").read_text())["processes"]
    # A rank on a busy machine misses one where it has a window in the midst of a long step, which is its own.
    typical = [{w["step"] for w in process["windows"] if w["reason"] == "typical"} for process in processes if "windows" in process]
    assert len(typical) == 4 and len(set.intersection(*typical)) >= max(1, max(map(len, typical)) / 2), typical
