"""Native stacks under torch.compile: code that dynamo and inductor generate, in Python and in C++."""
import re
import subprocess

import pytest

from conftest import PATIENCE, clean_environment, profile, torch_here

# The first call is the compiler's.
PROGRAM = """
import os, torch
torch._inductor.config.compile_threads = 1

@torch.compile
def compiled(x, w):
    return torch.relu(torch.mm(x, w)).sin().sum()

def outer(x, w):
    return compiled(x, w)

torch.manual_seed(0)
x, w = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)
for i in range(3):
    with torch.profiler.record_function("call %d" % i):
        loss = outer(x, w)
        loss.backward()
    print("%.6f %.6f" % (loss.item(), w.grad.sum().item()), flush=True)
"""


@pytest.fixture(scope="module")
def recorded(launcher, torch_python, tmp_path_factory):
    """The run, and the one before it without the recorder, which compiles."""
    if torch_here()[0] < (2, 0):
        pytest.skip("there is no torch.compile before torch 2")
    directory = tmp_path_factory.mktemp("native_compile")
    (directory / "program.py").write_text(PROGRAM)
    environment = {"TORCHINDUCTOR_CACHE_DIR": directory / "cache", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": 0}
    command = [torch_python, directory / "program.py"]
    bare = subprocess.run(command, capture_output=True, env=clean_environment(environment), timeout=PATIENCE)
    assert bare.returncode == 0 and bare.stdout.count(b"\n") == 3, bare.stderr.decode()
    run = profile(launcher, directory / "run", command, ["--native", "on", "--quiet"], env=environment)
    assert (run.status, run.stdout_bytes) == (0, bare.stdout), run.stderr
    return run


def test_operators_of_a_compiled_function_have_whole_stacks_down_to_the_program(recorded, check_trace):
    trace = check_trace(recorded.trace())
    call, = (e for e in trace.spans("user_annotation") if e["name"] == "call 2")
    stacks = [(e["name"], e["args"]["stack"]) for e in trace.spans("cpu_op") if call["ts"] <= e["ts"] <= call["ts"] + call["dur"]]
    assert len(stacks) >= 10
    for name, stack in stacks:
        assert re.search(r"program\.py\(\d+\): <module>$", stack[-1]) and "..." not in stack, (name, stack)
        assert not [f for f in stack if re.match(r"_?Py[A-Z]|python3|dynamo_|pybind11::", f)], stack

    def is_below(stack, *outer):
        names = iter(stack)
        return all(any(re.search(pattern, frame) for frame in names) for pattern in outer)
    generated = r"cache/\w+/\w+\.py\(\d+\): call$"
    products = [stack for name, stack in stacks if name == "aten::mm"]
    assert len(products) == 2
    assert is_below(products[0], "^at::_ops::mm", generated, ": compiled$", ": outer$", ": <module>$"), products[0]
    assert is_below(products[1], "^at::_ops::mm", generated, "Engine::thread_main", ": backward$", ": <module>$"), products[1]
