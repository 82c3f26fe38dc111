"""record_param_comms, the range around the collectives of NCCL and its like: with the arguments that Kineto gives it."""
import json
import shutil

import pytest

import trace_rules
from conftest import SUPPORT, profile

PROGRAM = """
import json, sys, torch
sys.path.insert(0, %r)
from param_comms import collective
def talk():
    with collective("allreduce", 12, 12): pass
    with collective("all_to_allv", 10, 40, dtype=15, rank=3, group="5", description="tensors", start=1, stride=2, size=4,
                    split_in=[1, 2, 7], split_out=range(100, 140)): pass
    with collective("send", 6, 0, dtype=4, rank=2, start=0, stride=3, size=3): pass
    with torch.autograd.profiler.record_function("no collective"): pass
talk()
torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as p: talk()
p.export_chrome_trace(sys.argv[1])
""" % str(SUPPORT)
KEYS = ["Collective name", "dtype", "In msg nelems", "Out msg nelems", "In split size", "Out split size", "Global rank start",
        "Global rank stride", "Group size", "Process Group Name", "Process Group Description", "Process Group Ranks", "Rank", "Dst Rank",
        "Src Rank", "Is asynchronized op", "Seq"]


@pytest.fixture(scope="module")
def talked(launcher, torch_python, tmp_path_factory):
    """(collectives in our trace, those of torch.profiler's in the same run, version of torch); of each its arguments."""
    directory = tmp_path_factory.mktemp("collectives")
    (directory / "program.py").write_text(PROGRAM)
    run = profile(launcher, directory / "run", [torch_python, directory / "program.py", directory / "theirs.json"])
    assert run.status == 0, run.stderr
    trace = run.trace()
    assert trace_rules.broken_rules(trace, imports=False) == []
    theirs = json.loads((directory / "theirs.json").read_text())
    theirs = theirs["traceEvents"] if isinstance(theirs, dict) else theirs
    args = [[{k: v for k, v in e.get("args", {}).items() if k in KEYS} for e in sorted(events, key=lambda e: e["ts"])
             if e["name"] == "record_param_comms"] for events in (trace.spans("user_annotation", "cpu_op"), theirs)]
    version = trace.doc["torchprof"]["processes"][0]["metadata"]["torch.version"]
    assert not [k for e in trace.named("no collective") for k in e["args"] if k in KEYS]
    return args[0], args[1], tuple(int(n) for n in version.split(",")[0].split("."))


def test_a_collective_says_what_it_sends(talked):
    ours, _, version = talked
    reduce, all_to_all, send = ours[:3]
    assert ours[3:] == ours[:3]
    assert reduce.items() >= {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 12, "Out msg nelems": 12, "Rank": 1}.items()
    assert all_to_all.items() >= {"dtype": "BFloat16", "In msg nelems": 10, "Out msg nelems": 40, "In split size": "[1, 2, 7]"}.items()
    assert all_to_all["Out split size"].startswith("[100, 101, ") and all_to_all["Out split size"].endswith("128, ..., 139]")
    if version >= (2, 6):
        assert reduce.items() >= {"Group size": 2, "Process Group Name": "0", "Process Group Description": "default_pg"}.items()
        assert (all_to_all["Process Group Ranks"], send["Process Group Ranks"], send["Dst Rank"]) == ("[1, 3, 5, 7]", "[0, 3, 6]", 6)


def test_it_says_what_kineto_says(talked):
    ours, theirs, version = talked
    assert len(theirs) == 3
    if version < (2,):  # without Kineto
        assert theirs == [{}, {}, {}]
        return
    if version < (2, 14):  # cut after the thirtieth
        theirs[1]["Out split size"] = theirs[1]["Out split size"].replace("129, ...]", "..., 139]")
    assert ours[3:] == theirs


def test_without_python_a_collective_of_the_default_group_tells_the_rank(run_torchprof, torch_python, program, tmp_path):
    run = run_torchprof([torch_python, program(PROGRAM), tmp_path / "theirs.json"], options=["--python", "off"], env={"RANK": "5"})
    doc = run.trace().doc
    if doc["torchprof"]["processes"][0]["metadata"]["torch.version"].startswith("1.13"):  # has no names of groups
        assert doc["distributedInfo"]["rank"] == 5
    else:
        assert doc["distributedInfo"] == {"backend": "unknown", "rank": 1, "world_size": 2, "source": "arguments of collectives"}


def test_in_a_torch_whose_constructor_is_unknown_they_are_ranges_like_others(prefix, torch_python, program, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(prefix, tree)
    library = tree / "lib" / "torchprof" / "libtorchprof.so"
    library.write_bytes(library.read_bytes().replace(b"19ParamCommsDebugInfoC1E", b"19ParamCommsDebugInfoC9E"))
    run = profile(tree / "bin" / "torchprof", tmp_path / "run", [torch_python, program(PROGRAM), tmp_path / "theirs.json"])
    assert run.status == 0 and "collectives failed: this torch's ParamCommsDebugInfo is not known" in run.stderr
    found = run.trace().named("record_param_comms")
    assert len(found) == 6 and all(e["args"]["Input Dims"] == [[3]] and "Collective name" not in e["args"] for e in found)
