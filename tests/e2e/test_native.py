"""Programs without Python that link libtorch."""
import os

import pytest

GTEST = "/usr/lib/libtorch-test/basic"  # of Debian's libtorch-test


def test_a_cpp_program_that_links_libtorch_gives_operators(run_torchprof, run_bare, check_trace):
    if not os.path.exists(GTEST):
        pytest.fail("%s is missing: apt-get install libtorch-test" % GTEST)
    command = [GTEST, "--gtest_filter=BasicTest.BasicTestCPU"]
    run, without = run_torchprof(command), run_bare(command)
    assert run.status == without.returncode == 0, run.stderr
    names = check_trace(run.trace()).names("cpu_op")
    assert names["aten::empty"] >= 1, names


def test_a_program_without_python_or_torch_leaves_nothing(run_torchprof):
    run = run_torchprof(["ls", "/"])
    assert run.status == 0
    assert run.trace_paths == []
    assert list(run.directory.rglob("*.spool")) == []
