"""torchrun: each rank is traced and says its number."""
import re
import subprocess

import pytest

from conftest import free_port

RANK = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
with torch.autograd.profiler.record_function("rank %d of torchrun" % dist.get_rank()):
    sums = torch.ones(2)
    dist.all_reduce(sums)
print(dist.get_rank(), sums.tolist())
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def torchrun(torch_python):
    # Files for the output: without them the torchrun of 1.13 does not start on Python 3.11.
    # torchrun's own port may be that of another job on this machine.
    command = [torch_python, "-m", "torch.distributed.run", "--redirects", "1", "--tee", "1", "--master_addr", "127.0.0.1", "--master_port", str(free_port())]
    tried = subprocess.run([*command, "--no_python", "true"], capture_output=True, text=True)
    if "without libuv" in tried.stderr:
        pytest.skip("this build of torch has no libuv, and its torchrun wants it")
    assert tried.returncode == 0, tried.stderr
    return command


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)])
def test_each_rank_of_torchrun_is_traced_under_its_number(ranks, torchrun, run_torchprof, program, check_trace, tmp_path):
    run = run_torchprof([*torchrun, "--log_dir", tmp_path, "--nproc_per_node", ranks, program(RANK)], options=["--python", "modules"])
    assert run.status == 0, run.stderr
    assert sorted(re.findall(r"(\d) \[(\d).0, \d.0\]", run.stdout)) == [(str(rank), str(ranks)) for rank in range(ranks)]
    assert sorted(re.findall(r"process \d+, rank (\d):", run.stderr)) == ([str(rank) for rank in range(ranks)] if ranks > 1 else [])
    for rank, trace in enumerate(sorted(map(check_trace, run.trace_paths), key=lambda trace: trace.doc["distributedInfo"]["rank"])):
        assert trace.names("user_annotation")["rank %d of torchrun" % rank] == 1
        assert trace.doc["distributedInfo"]["world_size"] == ranks
