"""Native stacks of operators and allocations."""
import collections
import subprocess

import pytest

from conftest import profile

# Of Debian's libtorch-test.
CPP_PROGRAM = ["/usr/lib/libtorch-test/basic", "--gtest_filter=BasicTest.BasicTestCPU"]
CPP_THREADS = ["/usr/lib/libtorch-test/thread_init_test"]

PYTHON_PROGRAM = """
import os, torch
def outer(): return inner()
def inner(): return torch.empty(3).add(1)
outer()
big = torch.empty(1 << 20)
small = torch.empty(8)
if os.fork() == 0:
    torch.ones(2).neg()
    os._exit(0)
os.wait()
"""


def stacks(trace):
    found = collections.defaultdict(list)
    for e in trace.spans("cpu_op"):
        found[e["name"]].append(e["args"].get("stack"))
    return found


def functions(stack):
    """Without files and arguments."""
    return [frame.split("(")[0].strip() for frame in stack]


def in_order(wanted, stack):
    found = iter(functions(stack))
    return all(any(name in frame for frame in found) for name in wanted)


@pytest.fixture(scope="module")
def python_run(launcher, torch_python, tmp_path_factory):
    run = profile(launcher, tmp_path_factory.mktemp("native") / "run", [torch_python, "-c", PYTHON_PROGRAM],
                  options=["--native", "on", "--python", "off"])
    assert run.status == 0, run.stderr
    return run


def test_an_operator_of_a_cpp_program_has_its_frames_down_to_the_beginning(run_torchprof, check_trace):
    run = run_torchprof(CPP_PROGRAM, options=["--native", "on", "--python", "off"])
    assert run.status == 0, run.stderr
    for stack in sum(stacks(check_trace(run.trace())).values(), []):
        assert in_order(["testing::TestInfo::Run", "testing::UnitTest::Run", "_start"], stack), stack
        assert stack[-1] == "_start" and not any("libtorchprof" in frame for frame in stack)


def test_operators_on_threads_that_a_cpp_program_makes_begin_with_the_thread(run_torchprof, check_trace):
    run = run_torchprof(CPP_THREADS, options=["--native", "on", "--python", "off"])
    assert run.status == 0, run.stderr
    outermost = {functions(stack)[-1] for stack in sum(stacks(check_trace(run.trace())).values(), [])}
    assert len(outermost) == 2 and "_start" in outermost, outermost


def test_an_operator_of_python_has_the_binding_and_the_interpreter_around_it(python_run, check_trace):
    traces = [check_trace(trace) for trace in python_run.traces()]
    stack, = (s for trace in traces for s in stacks(trace)["aten::add"])
    assert in_order(["at::_ops::add", "libtorch_python", "Py_RunMain", "_start"], stack), stack


def test_a_large_allocation_has_its_frames_and_a_small_one_has_none(python_run, check_trace):
    traces = [check_trace(trace) for trace in python_run.traces()]
    sizes = {e["args"]["Bytes"]: e["args"].get("stack") for trace in traces for e in trace.events if e["name"] == "[memory]" and e["args"]["Bytes"] > 0}
    assert in_order(["at::", "_start"], sizes[4 << 20]), sizes[4 << 20]
    assert sizes[32] is None


def test_the_threshold_says_which_allocation_is_large(run_torchprof, torch_python, check_trace, program):
    run = run_torchprof([torch_python, program("import torch\na = torch.empty(1 << 10)\nb = torch.empty(1 << 9)\n")],
                        options=["--native", "on", "--native-threshold", "4K", "--python", "off"])
    sizes = {e["args"]["Bytes"]: e["args"].get("stack") for e in check_trace(run.trace()).events if e["name"] == "[memory]" and e["args"]["Bytes"] > 0}
    assert run.status == 0 and sizes[2 << 10] is None and in_order(["at::", "_start"], sizes[4 << 10]), sizes


def test_an_operator_while_the_list_of_objects_is_held(run_torchprof, torch_python, check_trace, program):
    """The loader's lock is taken: a stack must not wait for it on another thread, nor on this one."""
    text = """
import ctypes, threading, torch
def operator():
    thread = threading.Thread(target=torch.neg, args=(torch.ones(3),))
    torch.abs(torch.ones(2))
    thread.start()
    thread.join(20)
    return thread.is_alive()
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
print(ctypes.CDLL(None).dl_iterate_phdr(CALLBACK(lambda *_: 1 + operator()), None))
"""
    run = run_torchprof([torch_python, program(text)], options=["--native", "on", "--python", "off"])
    assert (run.status, run.stdout) == (0, "1\n"), run.stderr
    assert {"aten::abs", "aten::neg"} <= set(stacks(check_trace(run.trace())))


def test_a_forked_child_has_its_own(python_run, check_trace):
    traces = [check_trace(trace) for trace in python_run.traces()]
    stack, = (s for trace in traces for s in stacks(trace)["aten::neg"])
    assert in_order(["at::_ops::neg", "_start"], stack), stack


def test_without_the_option_there_are_none(run_torchprof, torch_python, check_trace):
    run = run_torchprof([torch_python, "-c", "import torch; torch.ones(1 << 20)"], options=["--python", "off"])
    trace = check_trace(run.trace())
    assert stacks(trace)["aten::ones"] and not any("stack" in e.get("args", {}) for e in trace.events)


def test_an_export_elsewhere_has_the_names_that_were_found_here(python_run, torchprof, tmp_path, check_trace):
    """Its objects are not there: the names come from the run directory alone."""
    symbols = python_run.directory / "spool" / "symbols"
    symbols.write_text(symbols.read_text().replace("at::_ops::", "elsewhere::"))
    done = torchprof("export", python_run.directory, "--format", "kineto", "-o", tmp_path / "again.json")
    assert done.returncode == 0, done.stderr
    stack, = stacks(check_trace(tmp_path / "again.json", merged=True))["aten::add"]
    assert in_order(["elsewhere::add", "_start"], stack), stack


def test_an_object_that_was_unloaded_leaves_no_frames_to_the_next_one(run_torchprof, torch_python, tmp_path, check_trace):
    """Both call back into Python from the same place in the file, one after the other at the same address."""
    for name in ("first", "second"):
        source = tmp_path / (name + ".c")
        source.write_text("int %s_calls(int (*back)(void)) { return back() + 1; }\n" % name)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", tmp_path / (name + ".so"), source], check=True)
    program = """if 1:
        import _ctypes, ctypes, torch
        back = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: int(torch.ones(1).neg().item()))
        for name in ("first", "second"):
            handle = _ctypes.dlopen("./" + name + ".so", 0)
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_ctypes.dlsym(handle, name + "_calls"))(back)
            _ctypes.dlclose(handle)
    """
    run = run_torchprof([torch_python, "-c", program], options=["--native", "on", "--python", "off"], cwd=tmp_path)
    assert run.status == 0, run.stderr
    first, second = stacks(check_trace(run.trace()))["aten::neg"]
    assert "first_calls" in functions(first) and "second_calls" not in functions(first)
    assert "second_calls" in functions(second) and "first_calls" not in functions(second)
