"""Programs without Python that link libtorch."""
import collections
import os

import pytest

# Of Debian's libtorch-test.
GTEST = "/usr/lib/libtorch-test/basic"
THREADS = "/usr/lib/libtorch-test/thread_init_test"


def test_a_cpp_program_that_links_libtorch_gives_operators(run_torchprof, run_bare, check_trace):
    if not os.path.exists(GTEST):
        pytest.fail("%s is missing: apt-get install libtorch-test" % GTEST)
    command = [GTEST, "--gtest_filter=BasicTest.BasicTestCPU"]
    run, without = run_torchprof(command), run_bare(command)
    assert run.status == without.returncode == 0, run.stderr
    names = check_trace(run.trace()).names("cpu_op")
    assert names["aten::empty"] >= 1, names


def test_operators_on_the_threads_of_a_cpp_program(run_torchprof, check_trace):
    """It does the same work on threads that it makes itself, one after another."""
    run = run_torchprof([THREADS])
    assert run.status == 0, run.stderr
    trace = check_trace(run.trace())
    threads = collections.defaultdict(collections.Counter)
    for e in trace.spans("cpu_op"):
        threads[e["tid"]][e["name"]] += 1
    assert len(threads) >= 2
    assert all(names == threads[min(threads)] and names["aten::add"] == 1000 for names in threads.values())
    assert all("Input Dims" in e["args"] for e in trace.spans("cpu_op") if e["name"] == "aten::add")


def test_a_program_without_python_or_torch_leaves_nothing(run_torchprof):
    run = run_torchprof(["ls", "/"])
    assert run.status == 0
    assert run.trace_paths == []
    assert list(run.directory.rglob("*.spool")) == []
