"""Under nsys, ncu and the like, which have CUPTI to themselves: torchprof leaves it alone, says so in one line, and the tool works as without us."""
import json
import subprocess

import pytest
import spool_records as spool
from conftest import ROOT
from simulated_runs import EVERYTHING, run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

UNTOUCHED = {"dropped": 0, "unknown": 0, "cut": 0}


@pytest.fixture
def tool(tmp_path):
    """A library of this name that does what a tool's does."""
    def make(name):
        path = tmp_path / name
        subprocess.run(["cc", "-O1", "-Wall", "-shared", "-fPIC", "-o", path, ROOT / "tests" / "cupti_sim" / "injected_tool.c", "-ldl"], check=True)
        return path
    return make


def check_left_alone(run, reports, name, mark):
    line, = (line for line in run.stderr.splitlines() if "the GPU is not recorded" in line)
    assert line == "torchprof: the GPU is not recorded: %s has CUPTI (%s)" % (name, mark)
    process, = json.loads((run.directory / "run.json").read_text())["processes"]
    assert process["sources"]["gpu"] == {"state": "off", "detail": "%s has CUPTI (%s)" % (name, mark)}
    assert list(reports.values()) == [UNTOUCHED]
    assert not any(spool.gpu_records(spool.spools(run)[0]).values())


@pytest.mark.parametrize("name, variable", [
    ("nsys", "NSYS_PROFILING_SESSION_ID"), ("ncu", "NV_COMPUTE_PROFILER_PERFWORKS_DIR"), ("ncu", "NV_NSIGHT_INJECTION_PORT_BASE"),
    ("ncu", "NV_NSIGHT_INJECTION_TRANSPORT_TYPE"), ("compute-sanitizer", "NV_SANITIZER_INJECTION_PORT_RANGE_BEGIN"), ("nvprof", "NVPROF_ID")])
def test_a_tool_is_known_by_what_it_leaves_in_the_environment(run_simulated, name, variable):  # noqa: F811
    run, reports = run_simulated(EVERYTHING, env={variable: "1"})
    assert (run.status, run.stdout) == (0, "done\n")
    check_left_alone(run, reports, name, variable)


@pytest.mark.parametrize("name, library, mark", [
    ("nsys", "libToolsInjection64.so", "libToolsInjection"), ("ncu", "libcuda-injection.so", "libcuda-injection.so"),
    ("compute-sanitizer", "libsanitizer-collection.so", "libsanitizer-collection.so")])
def test_a_tool_that_cuda_loads_has_cupti_and_keeps_it(run_simulated, tool, name, library, mark):  # noqa: F811
    path = tool(library)
    run, reports = run_simulated(EVERYTHING + "; import os; print(os.environ['CUDA_INJECTION64_PATH'])", env={"CUDA_INJECTION64_PATH": path})
    assert (run.status, run.stdout) == (0, "the tool has CUPTI: 0\ndone\n%s\n" % path), run.stderr
    check_left_alone(run, reports, name, mark)


@pytest.mark.parametrize("library, mark", [("libToolsInjectionProxy64.so", "libToolsInjection"), ("libnsys.so", "libnsys.so")])
def test_a_tool_that_is_preloaded_is_known_by_its_library(run_simulated, tool, library, mark):  # noqa: F811
    run, reports = run_simulated(EVERYTHING + "; import os; print('CUDA_INJECTION64_PATH' in os.environ)", env={"LD_PRELOAD": tool(library)})
    assert (run.status, run.stdout) == (0, "done\nFalse\n"), run.stderr
    check_left_alone(run, reports, "nsys", mark)


def test_torch_that_initialises_cuda_under_a_tool_says_it_at_once_and_operators_are_recorded(run_simulated, check_trace):  # noqa: F811
    text = ("import sys, torch\nfrom simulated_gpu import doubled, sim\nD = doubled()\nsim.simInit(1)\n"
            "D.apply(torch.ones(4, requires_grad=True)).sum().backward()")
    run, reports = run_simulated(text, env={"NSYS_PROFILING_SESSION_ID": "7"})
    check_left_alone(run, reports, "nsys", "NSYS_PROFILING_SESSION_ID")
    assert check_trace(run.trace()).names("cpu_op")["Doubled"] == 1


def test_nvtx_stays_with_the_tool(run_simulated, tool, tmp_path):  # noqa: F811
    path, program = tool("libToolsInjection64.so"), tmp_path / "ranges"
    source = tmp_path / "ranges.c"
    source.write_text('#include "%s"\nint main() { nvtxRangePushA("a"); nvtxRangePop(); return 0; }' % (ROOT / "tests" / "nvtx" / "client.h"))
    subprocess.run(["cc", "-DOWN_CLIENT", "-o", program, source, "-ldl", "-lpthread"], check=True)
    run, _ = run_simulated("", command=[program], env={"NVTX_INJECTION64_PATH": path})
    assert (run.status, run.stdout) == (0, "the tool has NVTX\n") and "GPU" not in run.stderr and not run.trace_paths, run.stderr


def test_a_process_that_does_not_use_cuda_says_nothing(torch_python, program, run_torchprof):
    run = run_torchprof([torch_python, program("print('done')")], env={"NSYS_PROFILING_SESSION_ID": "1"})
    assert run.stdout == "done\n" and "GPU" not in run.stderr


def test_gpu_off_says_nothing_of_tools(run_simulated):  # noqa: F811
    run, _ = run_simulated(EVERYTHING, options=["--gpu", "off"], env={"NSYS_PROFILING_SESSION_ID": "1"})
    assert run.stdout == "done\n" and "not recorded" not in run.stderr
