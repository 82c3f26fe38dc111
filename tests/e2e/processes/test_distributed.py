"""Two processes that talk over gloo: who is which rank, in which groups, and what they say to each other."""
import json
import re
import shutil

import pytest

from conftest import profile

PROGRAM = """
import json, os, sys, torch, torch.distributed as dist

rank, directory = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method="file://" + directory + "/store", rank=rank, world_size=2)
pair = dist.new_group([0, 1])
alone = [dist.new_group([r]) for r in (0, 1)][rank]
t = torch.full((4, 3), float(rank + 1))
dist.all_reduce(t)
assert t[0, 0] == 3
parts = [torch.empty(4, 3) for _ in range(2)]
dist.all_gather(parts, t, group=pair)
dist.broadcast(t, 1)
# Tensors that outlive their operation: one that gloo's thread lets go of wants Python's lock there, and torch aborts if Python ends just then.
first, second, ones = t[0], t[1], torch.ones(5, dtype=torch.int64)
dist.send(first, 0) if rank else dist.recv(second, 1)
dist.barrier()
dist.all_reduce(ones, group=alone)
truth = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])._get_distributed_info()
json.dump(truth, open(directory + "/truth%d" % rank, "w"))
dist.destroy_process_group()
"""


WAITS = """
import os, signal, sys, tempfile, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + tempfile.mktemp(dir="."), rank=0, world_size=1)
with torch.autograd.profiler.record_function("waiting for nobody"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run_pair(launcher, torch_python, directory, options=()):
    program = directory / "program.py"
    program.write_text(PROGRAM)
    script = 'RANK=0 "$0" "$1" 0 "$2" & RANK=1 "$0" "$1" 1 "$2"; wait $!'
    run = profile(launcher, directory / "run", ["sh", "-c", script, torch_python, program, directory], options=options,
                  env={"GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": 2})
    assert run.status == 0, run.stderr
    truth = [json.loads((directory / ("truth%d" % rank)).read_text()) for rank in (0, 1)]
    traces = {trace.doc["distributedInfo"]["rank"]: trace for trace in run.traces()}
    assert set(traces) == {0, 1}
    return run, [traces[0], traces[1]], truth


@pytest.fixture(scope="module")
def pair(launcher, torch_python, tmp_path_factory):
    """(the run, the traces of rank 0 and 1, what torch.profiler would have said in each)"""
    return run_pair(launcher, torch_python, tmp_path_factory.mktemp("pair"))


def test_each_trace_says_its_rank_and_groups_as_torch_does(pair, check_trace):
    _, traces, truth = pair
    for trace, expected in zip(traces, truth):
        info = check_trace(trace).doc["distributedInfo"]
        assert {key: info[key] for key in ("backend", "rank", "world_size")} == \
            {key: expected[key] for key in ("backend", "rank", "world_size")}
        assert [(g["pg_size"], g["ranks"]) for g in info["pg_config"]] == [(2, [0, 1]), (2, [0, 1]), (1, [info["rank"]])]
        if "pg_config" in expected:  # torch 2
            assert info["pg_config"] == expected["pg_config"] and info["pg_count"] == len(expected["pg_config"])


def test_hta_finds_the_rank(pair):
    _, traces, _ = pair
    for rank, trace in enumerate(traces):
        assert re.search(r'"rank":\s+(\d+)', trace.text)[1] == str(rank)


def test_collectives_are_operators_with_their_tensors(pair):
    for rank, trace in enumerate(pair[1]):
        ops = {e["name"]: e for e in trace.spans("cpu_op") if e["name"].startswith("c10d::")}
        assert set(ops) >= {"c10d::allreduce_", "c10d::allgather_", "c10d::broadcast_", "c10d::barrier", ["c10d::recv_", "c10d::send"][rank]}
        assert ops["c10d::broadcast_"]["args"]["Input Dims"][0] == [[4, 3]]
        work = trace.names("user_annotation")
        assert work["gloo:all_reduce"] == 2 and work["gloo:all_gather"] == work["gloo:broadcast"] == 1


def test_the_merged_trace_names_ranks(pair, load_trace):
    run, traces, _ = pair
    labels = {e["pid"]: e["args"]["labels"] for e in load_trace(run.merged_path).events if e["name"] == "process_labels"}
    assert [labels[trace.pid] for trace in traces] == ["CPU, rank 0", "CPU, rank 1"]


TRAINS = """
import sys, torch, torch.distributed as dist
rank, directory = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method="file://" + directory + "/store", rank=rank, world_size=2)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    model(torch.ones(2, 4)).sum().backward()
    for p in model.parameters(): dist.all_reduce(p.grad)
    optimizer.step()
dist.destroy_process_group()
"""


def test_ranks_have_the_same_steps_in_their_windows(launcher, torch_python, tmp_path, check_trace):
    (tmp_path / "program.py").write_text(TRAINS)
    script = 'RANK=0 "$0" "$1" 0 "$2" & RANK=1 "$0" "$1" 1 "$2"; wait $!'
    run = profile(launcher, tmp_path / "run", ["sh", "-c", script, torch_python, tmp_path / "program.py", tmp_path], options=["-w", "steps=2..3"],
                  env={"GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": 2})
    assert run.status == 0, run.stderr
    marks = [sorted(name for name in check_trace(trace).names("user_annotation") if name.startswith("ProfilerStep#")) for trace in run.traces()]
    assert len(marks) == 2 and marks[0] == marks[1] and marks[0][:2] == ["ProfilerStep#2", "ProfilerStep#3"], marks


def test_where_says_which_rank_is_dead(run_torchprof, torchprof, torch_python, program):
    run = run_torchprof([torch_python, program(WAITS)], env={"GLOO_SOCKET_IFNAME": "lo"})
    text = torchprof("where", run.directory).stdout
    assert re.search(r"^process \d+, rank 0, dead:", text, re.M) and "waiting for nobody" in text


def test_without_python_the_environment_gives_the_rank_and_says_so(launcher, torch_python, tmp_path):
    _, traces, _ = run_pair(launcher, torch_python, tmp_path, ["--python", "off"])
    for rank, trace in enumerate(traces):
        assert trace.doc["distributedInfo"] == {"backend": "unknown", "rank": rank, "world_size": 2, "source": "environment variable RANK"}


@pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")
@pytest.mark.parametrize("outside", ["torchprof", "mpirun"])
def test_the_ranks_of_mpirun_are_named(torchprof, launcher, torch_python, program, run_bare, load_trace, tmp_path, outside):
    script = program("import os, torch\nprint((torch.ones(4) * int(os.environ['OMPI_COMM_WORLD_RANK'])).sum().item())")
    torchprof_run = [launcher, "run", "-q", "-o", tmp_path / "run", "--format", "kineto-ranks"]
    mpirun = ["mpirun", "--oversubscribe", "-n", "2"]
    if outside == "mpirun":
        torchprof_run[4] = tmp_path / "run-%q{OMPI_COMM_WORLD_RANK}"
    ran = run_bare([*(torchprof_run + mpirun if outside == "torchprof" else mpirun + torchprof_run), torch_python, script],
                   env={"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    assert (ran.returncode, sorted(ran.stdout.split())) == (0, [b"0.0", b"4.0"]), ran.stderr
    traces = [load_trace(path) for path in tmp_path.glob("run*/rank[01].pt.trace.json.gz")]
    assert sorted(t.doc["distributedInfo"]["rank"] for t in traces) == [0, 1]
    assert {t.doc["distributedInfo"]["source"] for t in traces} == {"environment variable OMPI_COMM_WORLD_RANK"}
    assert all(t.spans("cpu_op") for t in traces)


def test_at_the_level_of_modules_groups_are_known_and_are_no_spans(launcher, torch_python, tmp_path):
    _, traces, truth = run_pair(launcher, torch_python, tmp_path, ["--python", "modules"])
    assert [len(trace.doc["distributedInfo"]["pg_config"]) for trace in traces] == [3, 3]
    assert not [name for trace in traces for name in trace.names("python_function") if "process_group" in name or "new_group" in name]
