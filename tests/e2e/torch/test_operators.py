"""What is recorded of an operator beside its time: overload, inputs, scope, and where it ended."""
import collections
import json
import re

import pytest

from conftest import SUPPORT, torch_here

LISTS = "Input Dims", "Input Strides", "Input type", "Concrete Inputs"


@pytest.fixture
def torch_version():
    return torch_here()[0]


@pytest.fixture
def trace_of(run_torchprof, torch_python, check_trace, tmp_path):
    """trace_of(SCRIPT) is the trace of a script, which has to end well. It is in a file: TorchScript reads it."""
    def run(script, **more):
        program = tmp_path / "program.py"
        program.write_text(script)
        done = run_torchprof([torch_python, program], **more)
        assert done.status == 0, done.stderr
        return check_trace(done.trace())
    return run


def operators(trace, name):
    return [e for e in trace.spans("cpu_op") if e["name"] == name]


def test_operators_have_their_overload_names(trace_of):
    trace = trace_of("import torch; a = torch.ones(2); b = a + a; b + 1; a.mul_(2); torch.add(a, a, out=b); a.sum(); a.sum(0)")
    overloads = collections.Counter((e["name"], e["args"].get("Overload name")) for e in trace.spans("cpu_op"))
    assert overloads["aten::add", "Tensor"] == 2
    assert overloads["aten::add", "out"] == 1
    assert overloads["aten::mul_", "Tensor"] == 1
    assert overloads["aten::sum", None] == 1
    assert overloads["aten::sum", "dim_IntList"] >= 1
    assert trace.names("cpu_op")["aten::add"] == 3  # one name, whatever the overload


# ---- tensors of every kind ----

# Where we differ from torch.profiler by design, and what is then compared.
#   operators that the boxed fallback calls   it lists their inputs twice: the interpreter's whole stack. Both sides are halved.
#   symbolic numbers                          their names are Python's to tell; ours are "?"
def comparable(span, name, dims, strides, types, concrete):
    columns = [json.dumps(row) for row in zip(dims, strides, types, [symbols(text) for text in concrete])]
    while columns and columns[:len(columns) // 2] == columns[len(columns) // 2:]:
        columns = columns[:len(columns) // 2]
    return span, name, tuple(columns)


def symbols(text):
    return re.sub(r"[^\[\], ]*\bs\d+[^\[\], ]*", "?", text)


def spans_seen(trace):
    """The second time that each ran: torch.profiler was on."""
    last = {e["name"]: e for e in trace.spans("user_annotation") if e["name"].startswith("odd: ")}
    for span in last.values():
        for e in trace.inside(span, "cpu_op", "user_annotation"):
            yield [span["name"], e["name"], *[e["args"].get(key, []) for key in LISTS]]


LONG = """
import torch
for count in (3, 100, 600): torch.cat([torch.ones(1, 3)] * count, dim=0)
"""


def test_where_a_list_has_too_many_tensors_the_other_inputs_stay_and_it_says_how_many_are_left_out(trace_of):
    few, some, many = [e["args"] for e in operators(trace_of(LONG), "aten::cat")]
    for args in (few, some, many):
        assert args["Input type"] == ["TensorList", "Scalar"] and args["Concrete Inputs"] == ["", "0"]
        assert set(map(tuple, args["Input Dims"][0])) == {(1, 3)}
    assert len(few["Input Dims"][0]) == 3 and len(some["Input Dims"][0]) == 100
    assert "Inputs left out" not in few and "Inputs left out" not in some
    left_out, of_the_number = many["Inputs left out"]
    assert left_out > 0 and of_the_number == 0 and len(many["Input Dims"][0]) + left_out == 600


FIRST = """
import os, sys
import numpy, torch
for line in sys.argv[1:]:
    if os.fork() == 0:
        exec(line)
        os._exit(0)
    os.wait()
"""
# What a program may do first: operators with truth values and without a list or a text before them, and those with them.
FIRST_LINES = ["torch.eye(3)", "torch.arange(3)", "torch.randperm(5)", "torch.from_numpy(numpy.ones((3, 4))).float()", "torch.FloatTensor([1., 2.]).sum()",
               "torch.tensor(True).to(torch.float64)", "torch.ones(2, 3)", "torch.tensor([1j]).abs()", "torch.empty(0).sum(0)",
               "torch.nn.Linear(3, 4)(torch.ones(2, 3))", "torch.einsum('ij,kj->ik', torch.ones(3, 4), torch.ones(3, 4))"]


def test_the_first_operators_of_a_program_have_their_inputs(run_torchprof, torch_python, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(FIRST)
    run = run_torchprof([torch_python, program, *FIRST_LINES], options=["--python", "off"])
    assert run.status == 0, run.stderr
    children = [trace for trace in run.traces() if trace.spans("cpu_op")]
    assert len(children) == len(FIRST_LINES)
    for trace in children:
        without = [e["name"] for e in trace.spans("cpu_op") if "Input Dims" not in e["args"]]
        assert without == [], trace.names("cpu_op")


def test_inputs_of_odd_tensors_are_what_torch_profiler_sees(run_torchprof, torch_python, tmp_path, torch_version):
    run = run_torchprof([torch_python, SUPPORT / "odd_tensors.py", tmp_path / "theirs.json"])
    assert run.status == 0, run.stderr
    ours, theirs = list(spans_seen(run.trace())), json.loads((tmp_path / "theirs.json").read_text())
    if torch_version < (2, 0):  # dims of single tensors, without spans; what record_function itself does lies outside of ours
        own = "aten::zeros", "aten::zero_", "aten::empty", "odd: "
        count = [collections.Counter((name, json.dumps([[] if d and isinstance(d[0], list) else d for d in dims]))
                                     for _, name, dims, *_ in side if not name.startswith(own)) for side in (ours, theirs)]
    else:
        count = [collections.Counter(comparable(*row) for row in side) for side in (ours, theirs)]
    assert sum(count[0].values()) > 100
    assert count[0] - count[1] == count[1] - count[0] == collections.Counter()


# ---- ranges ----

# In every order of a range and a torch.profiler; bare, the program must print the same.
FAST_RANGES = """
import threading, torch
from torch.profiler import ProfilerActivity, profile
Fast = torch._C._profiler._RecordFunctionFast
def profiler(): return profile(activities=[ProfilerActivity.CPU], record_shapes=True)
with Fast("alone"): torch.ones(1)
with Fast("outer"):
    with Fast("inner", [torch.ones(2)], {"k": 1}): pass
with profiler() as first:
    with Fast("under", [torch.ones(2, 3)], {"grid": "g", "n": 3, "x": 2.0, "on": True}): torch.ones(1)
with profiler() as second:
    crossing = Fast("crossing")
    crossing.__enter__()
crossing.__exit__(None, None, None)
with Fast("around"):
    with profiler() as third: torch.ones(1)
def work():
    for _ in range(50):
        with Fast("thread"): torch.ones(1)
threads = [threading.Thread(target=work) for _ in range(4)]
with profiler() as fourth:
    for t in threads: t.start()
    for t in threads: t.join()
for p in first, third, fourth: print(sorted(e.name for e in p.events()))
"""


def test_fast_ranges_are_recorded_and_torch_profiler_sees_what_it_saw(run_torchprof, run_bare, torch_python, check_trace, torch_version):
    if torch_version < (2, 1):
        pytest.skip("torch %d.%d has no _RecordFunctionFast" % torch_version)
    command = [torch_python, "-c", FAST_RANGES]
    run, bare = run_torchprof(command), run_bare(command)
    assert run.status == bare.returncode == 0, run.stderr
    assert run.stdout_bytes == bare.stdout
    names = check_trace(run.trace()).names("cpu_op")
    assert {name: names[name] for name in ("alone", "outer", "inner", "under", "crossing", "around", "thread")} == {
        "alone": 1, "outer": 1, "inner": 1, "under": 1, "crossing": 1, "around": 1, "thread": 200}


def test_a_fast_range_that_a_profiler_begins_inside_of_does_not_stop_the_program(trace_of, torch_version):
    """Without us torch's own assertion fails here."""
    if torch_version < (2, 1):
        pytest.skip("torch %d.%d has no _RecordFunctionFast" % torch_version)
    trace = trace_of("import torch; r = torch._C._profiler._RecordFunctionFast('begun before'); r.__enter__()\n"
                     "with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]): r.__exit__(None, None, None)")
    assert len(operators(trace, "begun before")) == 1


COMPILED = """
import torch
from torch.profiler import ProfilerActivity, profile
@torch.compile(backend="aot_eager")
def f(x): return x.sin() + 1
x = torch.ones(4)
for _ in range(3): f(x)
with profile(activities=[ProfilerActivity.CPU]) as profiler: f(x)
print(torch.autograd.profiler._is_profiler_enabled, sorted(e.name for e in profiler.events()))
"""


def test_what_compiled_code_makes_only_for_torch_profiler_is_not_made_for_us(run_torchprof, run_bare, torch_python, check_trace, torch_version):
    """Of inject/fast_ranges.h: a switch in Python that makes each call of compiled code slower stays as the program has it."""
    if torch_version < (2, 1):
        pytest.skip("torch %d.%d has no _RecordFunctionFast" % torch_version)
    command = [torch_python, "-c", COMPILED]
    run, bare = run_torchprof(command), run_bare(command)
    assert run.status == bare.returncode == 0, run.stderr
    assert run.stdout_bytes == bare.stdout and run.stdout.startswith("False ")
    names = check_trace(run.trace()).names("cpu_op")
    assert names["Torch-Compiled Region: 0/0"] >= 3
    gated = "AOTDispatcher Runtime Wrapper Prologue", "Pregraph bytecode"  # 2.14; under torch.profiler we see them too
    assert [names[name] for name in gated] == [run.stdout.count(name) for name in gated]


def test_keyword_inputs_are_arguments_of_their_own_names(trace_of, torch_version):
    if torch_version < (2, 4):
        pytest.skip("operators of torch %d.%d have no keyword inputs" % torch_version)
    under, = operators(trace_of(FAST_RANGES), "under")
    assert {key: under["args"].get(key) for key in ("grid", "n", "x", "on")} == {"grid": "g", "n": 3, "x": 2.0, "on": True}
    assert under["args"]["Input Dims"] == [[2, 3]]


def test_a_range_that_ends_on_another_thread_ends_there_and_then(trace_of):
    trace = trace_of("""
import threading, time, torch
future = torch.futures.Future()
with torch.autograd.profiler.record_function("waits for another thread") as r:
    r._call_end_callbacks_on_future(future)
torch.ones(3)
def finish():
    time.sleep(0.05)
    torch.linspace(0, 1, 3)
    future.set_result(1)
thread = threading.Thread(target=finish)
thread.start()
thread.join()
torch.eye(3)
""")
    waits, = [e for e in trace.spans("user_annotation") if e["name"] == "waits for another thread"]
    ones, = operators(trace, "aten::ones")
    other, = [e for e in operators(trace, "aten::linspace") if e["tid"] != waits["tid"] and e["args"].get("Overload name") != "out"]
    eye = operators(trace, "aten::eye")[0]
    assert waits["ts"] < ones["ts"] < other["ts"] < waits["ts"] + waits["dur"] < eye["ts"]


def test_torchscript_is_recorded_under_its_names(trace_of):
    trace = trace_of("""
import torch
@torch.jit.script
def scripted_function(x):
    return x.sin() * 2
class Scripted(torch.nn.Module):
    def forward(self, x):
        return scripted_function(x) - 1
module = torch.jit.script(Scripted())
module(torch.ones(2))
scripted_function(torch.ones(2))
""", options=["--python", "off"])
    function, = operators(trace, "scripted_function")  # inlined in the module
    assert {"aten::sin", "aten::mul"} <= {e["name"] for e in trace.inside(function, "cpu_op")}
    forward, = operators(trace, "forward")
    assert {"aten::sin", "aten::mul", "aten::sub"} <= {e["name"] for e in trace.inside(forward, "cpu_op")}


# A task that gets no tensor of Python: torch's thread would need the interpreter to release it, even after the interpreter's end.
ON_THREADS_OF_TORCH = """
import torch
class Deep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, depth):
        ctx.depth = depth
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        if ctx.depth == 0:
            torch.linspace(0, 1, 7)
        else:
            with torch.enable_grad():
                Deep.apply(torch.ones(1, requires_grad=True), ctx.depth - 1).sum().backward()
        return gradient, None
@torch.jit.script
def task(n: int):
    return torch.linspace(0., 1., n)
@torch.jit.script
def forks():
    return torch.jit.wait(torch.jit.fork(task, 9))
forks()
Deep.apply(torch.ones(1, requires_grad=True), 70).sum().backward()
"""


def test_operators_on_the_threads_of_autograd_and_of_torchscript_are_recorded(trace_of):
    """60 backwards within one another are as many as torch runs on one thread; the rest goes to one of its own."""
    trace = trace_of(ON_THREADS_OF_TORCH)
    lines = {e["args"]["Concrete Inputs"][2]: e for e in operators(trace, "aten::linspace")}
    main, = {e["tid"] for e in operators(trace, "forks")}
    assert len({main, lines["7"]["tid"], lines["9"]["tid"]}) == 3
    backward = [e for e in operators(trace, "DeepBackward")]
    assert len(backward) == 71
    assert len({e["tid"] for e in backward}) == 2


HELD = """
import gc, weakref, torch
from torch.autograd.profiler import record_function
gc.disable()
def work():
    t = torch.ones(12345, requires_grad=True)
    list_of = [t, t * 2]
    torch.cat(list_of).sum().backward()
    with record_function("with inputs"): torch.nn.functional.linear(t, t.detach()[None])
    return [weakref.ref(x) for x in (t, t.grad, *list_of)]
with record_function("work"): watched = work()
assert [w() for w in watched] == [None] * 4, "a tensor is held"
module = torch.nn.Linear(54321, 1)
optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
module(torch.ones(54321)).backward()
optimizer.step()
watched = [weakref.ref(x) for x in (module, optimizer, module.weight, module.weight.grad)]
del optimizer, module
gc.collect()  # torch's own cycles
print([w() is None for w in watched])
with record_function("after"): pass
"""


def test_no_tensor_module_or_optimizer_is_held(run_torchprof, run_bare, torch_python, check_trace):
    run, bare = run_torchprof([torch_python, "-c", HELD]), run_bare([torch_python, "-c", HELD])
    assert run.status == bare.returncode == 0, run.stderr
    assert run.stdout_bytes == bare.stdout
    trace = check_trace(run.trace())
    after, = [e for e in trace.spans("user_annotation") if e["name"] == "after"]
    for elements in 12345, 54321:  # nor is the memory
        moves = [e["args"]["Bytes"] for e in trace.events if e["name"] == "[memory]" and abs(e["args"]["Bytes"]) == 4 * elements and e["ts"] < after["ts"]]
        assert len(moves) > 3 and sum(moves) == 0


def test_methods_of_custom_classes_are_recorded(trace_of):
    trace = trace_of("""
import torch
packed = torch.ops.quantized.linear_prepack(torch.quantize_per_tensor(torch.ones(2, 2), 1.0, 0, torch.qint8), None)
for _ in range(3): packed.__getstate__()
""")
    assert len(operators(trace, "__getstate__")) == 3


def test_the_static_runtime_and_its_operators_are_recorded(trace_of):
    trace = trace_of("""
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return (x * 2 + 1).relu()
static = torch._C._jit_to_static_module(torch.jit.freeze(torch.jit.script(Model()).eval())._c)
x = torch.ones(2)
with torch.autograd.profiler.record_function("static"): static(x)
""")
    span, = [e for e in trace.spans("user_annotation") if e["name"] == "static"]
    forward, = [e for e in trace.inside(span, "cpu_op") if e["name"] == "forward"]
    names = [e["name"] for e in sorted(trace.inside(forward, "cpu_op"), key=lambda e: e["ts"])]
    # The runtime reports each operator, and where it has no faster form the dispatcher reports it again.
    assert list(dict.fromkeys(n for n in names if n in ("aten::mul", "aten::add", "aten::relu"))) == ["aten::mul", "aten::add", "aten::relu"]
