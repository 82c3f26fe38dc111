"""The program's own NVTX ranges and marks, from C, from Python and without either; what happens to a tool that is there already."""
import json
import pathlib
import subprocess

import pytest

from conftest import ROOT

SOURCES = ROOT / "tests" / "nvtx"
HEADERS = [p for p in map(pathlib.Path, ("/usr/local/cuda/include", "/usr/include")) if (p / "nvtx3" / "nvToolsExt.h").exists()]
CLIENTS = {"documented": ["-DOWN_CLIENT"], **({"nvidia": ["-I%s" % HEADERS[0]]} if HEADERS else {})}


def build(source, target, *options):
    subprocess.run(["cc", "-O1", "-Wall", *options, "-o", target, source, "-ldl", "-lpthread"], check=True)
    return target


@pytest.fixture(params=CLIENTS)
def client(request):
    """What NVTX is to the program: our own words of the documented interface, and NVIDIA's headers where they are."""
    return CLIENTS[request.param]


@pytest.fixture
def c_program(tmp_path):
    """c_program(TEXT) builds a C program that has nvtx* functions."""
    def make(text, *options):
        source = tmp_path / "program.c"
        source.write_text('#include "%s"\n%s' % (SOURCES / "client.h", text))
        return build(source, tmp_path / "program", *(options or CLIENTS["documented"]))
    return make


@pytest.fixture
def library(tmp_path):
    return build(SOURCES / "library.c", tmp_path / "libranges.so", "-shared", "-fPIC", *CLIENTS["documented"])


def ranges(trace):
    return {e["name"]: e for e in trace.spans("user_annotation") if "NVTX domain" in e["args"]}


def marks(trace):
    return {e["name"]: e["args"] for e in trace.events if e["ph"] == "i" and "NVTX domain" in e.get("args", {})}


def said(event):
    return {key[5:]: value for key, value in event["args"].items() if key.startswith("NVTX ")}


@pytest.mark.once
def test_a_c_program_has_its_ranges_marks_and_all_that_they_say(client, tmp_path, run_torchprof, check_trace):
    done = run_torchprof([build(SOURCES / "everything.c", tmp_path / "everything", *client)])
    assert done.status == 0 and done.stdout == "0 1 1 0 1 1 0 -2 \n", done.stderr
    trace = check_trace(done.trace())
    found = ranges(trace)
    assert set(found) == {"outer", "wïde € 😀", "rich", "registered", "in another thread", "from thread to thread", "started", "across",
                          "unnamed", "never popped"}
    assert said(found["rich"]) == {"domain": "library", "category": "loading", "payload": -5, "color": "#ff10a0f0"}
    assert said(found["registered"]) == {"domain": "library", "category": 8, "payload": 0.25}
    assert said(found["outer"]) == {"domain": "default"}
    assert marks(trace)["plain mark"].items() >= {"NVTX domain": "default"}.items()
    assert marks(trace)["rich mark"].items() >= {"NVTX domain": "library", "NVTX payload": 1.5}.items()
    assert found["never popped"]["args"]["finished"] is False
    assert [e["args"]["name"] for e in trace.events if e["name"] == "thread_name" and "the other one" in e["args"]["name"]]


@pytest.mark.once
def test_a_range_may_end_in_another_thread(client, tmp_path, run_torchprof):
    trace = run_torchprof([build(SOURCES / "everything.c", tmp_path / "everything", *client)]).trace()
    crossing, other = ranges(trace)["from thread to thread"], ranges(trace)["in another thread"]
    assert crossing["tid"] != other["tid"] and crossing["args"]["NVTX domain"] == "library"
    assert crossing["ts"] < other["ts"] < crossing["ts"] + crossing["dur"] < other["ts"] + other["dur"]


PYTHON = """
import ctypes, sys
nvtx = ctypes.CDLL(sys.argv[1])
nvtx.start.restype = ctypes.c_uint64
nvtx.end.argtypes = [ctypes.c_uint64]
def inside(): return 1
def work():
    nvtx.push(b"python range"); inside(); nvtx.pop()
    nvtx.mark(b"python mark")
"""


def test_a_python_program_has_its_ranges_among_its_calls(python, library, program, run_torchprof, check_trace):
    done = run_torchprof([python.path, program(PYTHON + "work()"), library])
    assert done.status == 0, done.stderr
    trace = check_trace(done.trace())
    span = ranges(trace)["python range"]
    assert "program.py(6): inside" in {e["name"].rpartition("/")[2] for e in trace.inside(span, "python_function")}
    assert "python mark" in marks(trace)


def test_operators_lie_in_the_range_around_them(torch_python, library, program, run_torchprof, check_trace):
    text = PYTHON + "import torch\na = torch.ones(3)\nnvtx.push(b'two products'); a @ a; a @ a; nvtx.pop(); a @ a"
    trace = check_trace(run_torchprof([torch_python, program(text), library]).trace())
    inner = [e["name"] for e in trace.inside(ranges(trace)["two products"], "cpu_op")]
    assert inner.count("aten::matmul") == 2 and trace.names("cpu_op")["aten::matmul"] == 3


def test_each_library_with_nvtx_in_it_is_seen_also_one_that_comes_late(library, tmp_path, program, run_torchprof):
    second = build(SOURCES / "library.c", tmp_path / "late.so", "-shared", "-fPIC", *CLIENTS["documented"])
    text = PYTHON + "nvtx.push(b'first'); late = ctypes.CDLL(sys.argv[2]); late.push(b'second'); print(late.pop(), nvtx.pop())"
    done = run_torchprof(["/usr/bin/python3", program(text), library, second])
    assert done.stdout == "1 0\n"
    assert set(ranges(done.trace())) == {"first", "second"}


@pytest.mark.once
def test_a_tool_that_is_there_already_stays(c_program, run_torchprof, tmp_path):
    theirs = {"NVTX_INJECTION64_PATH": "/nowhere/libtheirs.so"}
    bare = c_program('#include <stdio.h>\nint main() { printf("%s %d\\n", getenv("NVTX_INJECTION64_PATH"), nvtxRangePushA("a")); }')
    done = run_torchprof([bare], env=theirs)
    assert done.stdout == "/nowhere/libtheirs.so -2\n" and not done.trace_paths
    done = run_torchprof(["/usr/bin/python3", "-c", "import os; print(os.environ['NVTX_INJECTION64_PATH'])"], env=theirs)
    assert done.stdout == "/nowhere/libtheirs.so\n"
    source = json.loads((done.directory / "run.json").read_text())["processes"][0]["sources"]["nvtx"]
    assert source == {"state": "off", "detail": "NVTX_INJECTION64_PATH is /nowhere/libtheirs.so, which keeps it"}


@pytest.mark.once
def test_without_nvtx_its_calls_do_nothing(c_program, run_torchprof):
    text = '#include <stdio.h>\nint main() { printf("%d %d\\n", nvtxRangePushA("a"), getenv("NVTX_INJECTION64_PATH") != NULL); }'
    done = run_torchprof([c_program(text)], options=["--nvtx", "off"])
    assert done.status == 0 and done.stdout == "-2 0\n" and not done.trace_paths


def test_a_child_without_its_environment_and_a_forked_one_have_ranges_too(library, program, run_torchprof):
    text = PYTHON + """
import os, subprocess
nvtx.push(b"of the parent")
if len(sys.argv) == 2:
    subprocess.run([sys.executable, __file__, sys.argv[1], "child"], env={}, check=True)
    if os.fork() == 0:
        nvtx.push(b"of the fork"); nvtx.pop(); nvtx.pop()
        os._exit(0)
    os.wait()
else:
    nvtx.push(b"of the child"); nvtx.pop()
nvtx.pop()
"""
    done = run_torchprof(["/usr/bin/python3", program(text), library])
    assert done.status == 0, done.stderr
    assert sorted(map(sorted, (ranges(t) for t in done.traces()))) == [["of the child", "of the parent"], ["of the fork"], ["of the parent"]]


LOOP = """#include <unistd.h>
int main() {
  for (int i = 0; i < 3; ++i) {
    nvtxRangePushA("before");
    nvtxRangePushA("opens");
    nvtxRangePushA("within");
    nvtxMarkA("a mark");
    nvtxRangePop();
    nvtxRangePop();
    nvtxRangePop();
    nvtxMarkA("another mark");
    nvtxRangeId_t id = nvtxRangeStartA("numbered");
    nvtxRangePushA("beside");
    nvtxRangePop();
    nvtxRangeEnd(id);
  }
  %s
}
"""


@pytest.mark.once
@pytest.mark.parametrize("window, inside", [
    ("range=opens", {"opens": 3, "within": 3}), ("range=opens#2", {"opens": 1, "within": 1}), ("range=numbered#3", {"numbered": 1, "beside": 1})])
def test_a_range_opens_the_window(window, inside, client, c_program, run_torchprof, check_trace):
    done = run_torchprof([c_program(LOOP % "return 0;", *client)], options=["-w", window])
    assert done.status == 0, done.stderr
    trace = check_trace(done.trace())
    assert dict(trace.names("user_annotation")) == inside
    assert set(marks(trace)) == ({"a mark"} if "within" in inside else set())


def test_a_range_of_nvtx_opens_the_window_for_operators(torch_python, library, program, run_torchprof, check_trace):
    text = PYTHON + "import torch\na = torch.ones(3)\na + a; nvtx.push(b'now'); a @ a; nvtx.pop(); a + a"
    trace = check_trace(run_torchprof([torch_python, program(text), library], options=["-w", "range=now"]).trace())
    assert "now" in ranges(trace) and trace.names("cpu_op")["aten::matmul"] == 1 and "aten::add" not in trace.names("cpu_op")


@pytest.mark.once
@pytest.mark.parametrize("end", ["_exit(0);", "kill(getpid(), 9);", "execl(\"/bin/true\", \"true\", NULL);"])
def test_ranges_are_there_however_the_program_ends(end, c_program, run_torchprof):
    done = run_torchprof([c_program("#include <signal.h>\n" + LOOP % ('nvtxRangePushA("open at the end"); ' + end))])
    found = ranges(done.traces()[0])
    assert found["open at the end"]["args"]["finished"] is False and "within" in found


@pytest.mark.once
def test_deep_ranges_and_pops_too_many_leave_the_program_alone(c_program, run_torchprof, check_trace):
    text = """#include <stdio.h>
int main() {
  int deepest = 0, last = 0;
  for (int i = 0; i < 1000; ++i) deepest = nvtxRangePushA("deep");
  for (int i = 0; i < 1000; ++i) last = nvtxRangePop();
  nvtxRangePushA("after"); nvtxRangePop();
  printf("%d %d %d\\n", deepest, last, nvtxRangePop());
  nvtxRangeEnd(12345); nvtxMarkEx(NULL);
  nvtxEventAttributes_t a = {0};
  nvtxRangePushEx(&a); nvtxRangePop();
  nvtxDomainHandle_t d = nvtxDomainCreateA("gone"); nvtxDomainDestroy(d);
  return nvtxDomainCreateA("gone") != d;
}"""
    done = run_torchprof([c_program(text)])
    assert done.status == 0 and done.stdout == "999 0 -2\n"
    trace = check_trace(done.trace())
    assert trace.names("user_annotation") == {"deep": 256, "after": 1, "unnamed": 1}


@pytest.mark.once
def test_the_oldest_ranges_make_room_and_open_ones_stay_known(c_program, run_torchprof, check_trace):
    text = 'int main() { nvtxRangePushA("whole run"); for (int i = 0; i < 400000; ++i) { nvtxRangePushA("one of many"); nvtxRangePop(); } nvtxRangePop(); }'
    done = run_torchprof([c_program(text)], options=["--keep", "last", "--max-size", "4M"])
    trace = check_trace(done.trace())
    whole, many = ranges(trace)["whole run"], trace.named("one of many")
    assert 1000 < len(many) < 400000 and all(whole["ts"] <= e["ts"] and e["ts"] + e["dur"] <= whole["ts"] + whole["dur"] for e in many)


@pytest.mark.once
def test_no_range_of_many_threads_is_lost(client, c_program, run_torchprof, check_trace):
    text = """#include <pthread.h>
static void* work(void* name) {
  for (int i = 0; i < 1500; ++i) { nvtxRangePushA(name); nvtxRangeEnd(nvtxRangeStartA("numbered")); nvtxRangePop(); }
  return 0;
}
int main() {
  pthread_t threads[8];
  static char names[8][8] = {"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"};
  for (int i = 0; i < 8; ++i) pthread_create(&threads[i], 0, work, names[i]);
  for (int i = 0; i < 8; ++i) pthread_join(threads[i], 0);
}"""
    trace = check_trace(run_torchprof([c_program(text, *client)]).trace())
    assert trace.names("user_annotation") == {**{"t%d" % i: 1500 for i in range(8)}, "numbered": 12000}
    assert len({e["tid"] for e in trace.named("numbered")}) == 8
