"""A torch that was built for CUDA, on a machine without a GPU: the program is as without us, and one line says why the GPU is missing.

Debian's is in a root of its own, which is large: tests/roots/roots.py trixie-cuda build tests/e2e/gpu/test_cuda_torch.py
"""
import json
import pathlib
import subprocess

import pytest

from conftest import what_torch_says

DRIVER = pathlib.Path("/usr/lib/x86_64-linux-gnu/nvidia/current")  # Debian's alternatives put it on the path, of which nothing is unpacked
USES_PROFILER = """
import torch
print(torch.cuda.is_available())
x = torch.randn(64, 64)
with torch.profiler.profile() as profiler:
    for _ in range(3):
        (x @ x).relu()
print(sorted((e.key, e.count) for e in profiler.key_averages()))
"""


@pytest.fixture(autouse=True)
def without_a_gpu(torch_python):
    if not what_torch_says()[2]:
        pytest.skip("torch is not built for CUDA here")
    if subprocess.run([torch_python, "-c", "import sys, torch; sys.exit(torch.cuda.is_available())"]).returncode:
        pytest.skip("there is a GPU: tests/gpu/record.py is for that")


@pytest.mark.parametrize("driver, lines", [(None, 0), (DRIVER, 1)], ids=["no library of the driver", "its library alone"])
def test_without_a_gpu_a_torch_for_cuda_runs_as_ever(torch_python, program, run_torchprof, run_bare, driver, lines):
    env = {"LD_LIBRARY_PATH": driver} if driver else {}
    script = program(USES_PROFILER)
    bare = run_bare([torch_python, script], env=env)
    run = run_torchprof([torch_python, script], options=["--format", "kineto"], env=env)
    assert (run.status, run.stdout) == (0, bare.stdout.decode()) and "aten::mm" in run.stdout
    assert run.stderr.count("the GPU is not recorded: ") == lines, run.stderr
    sources = json.loads((run.directory / "run.json").read_text())["processes"][0]["sources"]
    assert {sources[s]["state"] for s in ("operators", "inputs", "memory", "python")} == {"on"}
    assert ("gpu" in sources) == bool(lines)
    if lines:
        assert "is there a GPU" in sources["gpu"]["detail"]
