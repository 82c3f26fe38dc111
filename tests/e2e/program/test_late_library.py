"""The library where LD_PRELOAD did not bring it: what is recorded is the same."""
import collections
import json
import re
import textwrap

import pytest

TRAINING = textwrap.dedent("""
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters())
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor): return x * factor
        @staticmethod
        def backward(ctx, gradient): return gradient * 2, None
    for i in range(6):
        optimizer.zero_grad()
        Double.apply(model(torch.randn(8, 16)), 2).square().mean().backward()
        optimizer.step()
""")


def recorded(trace):
    """What of the events is the same in every run: names, shapes, sizes of blocks."""
    events = (e for e in trace.events if e["ph"] in "Xi" and e.get("cat") in ("cpu_op", "user_annotation", "python_function", "cpu_instant_event"))
    return collections.Counter((e["name"], str(e["args"].get("Input Dims")), str(e["args"].get("Concrete Inputs")), e["args"].get("Bytes")) for e in events)


@pytest.fixture
def record(launcher, prefix, run_bare, program, torch_python, torchprof, tmp_path, load_trace):
    """record(NAME, is_preloaded): the trace of TRAINING's steps 2 to 4, without a launcher around it."""
    def run(name, is_preloaded):
        library = prefix / "lib" / "torchprof"
        env = {"TORCHPROF_OUTPUT": tmp_path / name, "TORCHPROF_WINDOW": "steps=2..4", "PYTHONPATH": library / "python"}
        if is_preloaded:
            env["LD_PRELOAD"] = library / "libtorchprof.so"
        done = run_bare([torch_python, program(TRAINING)], env=env)
        assert (done.returncode, done.stderr) == (0, b"")
        written = torchprof("export", tmp_path / name, "--format", "kineto", "-o", tmp_path / (name + ".json"))
        assert written.returncode == 0, written.stderr
        return load_trace(tmp_path / (name + ".json")), torchprof("report", tmp_path / name).stdout
    return run


def test_with_pythonpath_alone_the_same_is_recorded(record):
    trace, summary = record("late", is_preloaded=False)
    expected, _ = record("preloaded", is_preloaded=True)
    assert recorded(trace) == recorded(expected)
    assert recorded(trace)["[memory]", "None", "None", 4], "no block of the loss"
    assert not re.search(r"Not in the trace:.*memory", summary, re.S)


# What `torchprof attach` does to a process, done by the process itself.
ITSELF = r"""
import _frozen_importlib, _imp, ctypes, gc, json, os, socket, sys, threading
library, directory = sys.argv[1:]
def attach(serial, **settings):
    module = _imp.create_dynamic(_frozen_importlib.ModuleSpec("_torchprof", None, origin=library))
    module.attach(("%d\n" % serial + "".join("TORCHPROF_%s=%s\n" % each for each in settings.items())).encode())
    return (ctypes.c_char * 1032).in_dll(ctypes.CDLL(library), "torchprof_answer").raw[8:].split(b"\n")[0].decode()
def say(command):
    spool = "%s/%d/spool" % (directory, turn)
    (door,) = [name for name in os.listdir(spool) if name.endswith(".ctl")]
    client, place = socket.socket(socket.AF_UNIX), os.open(spool, os.O_PATH)  # a path to a socket is short
    client.connect("/proc/self/fd/%d/%s" % (place, door))
    os.close(place)
    client.sendall(command.encode() + b"\n")
    answer = client.recv(1000).decode().strip()
    client.close()
    return answer
def first(): return 1
def second(): return 2
stop = threading.Event()
def busy():
    while not stop.is_set(): first()
def state():
    return [len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), sum(".spool" in line for line in open("/proc/self/maps")), len(gc.callbacks)]
threading.Thread(target=busy).start()
before = state()
answers, states = [], []
for turn in range(12):
    answers.append(attach(turn + 1, OUTPUT="%s/%d" % (directory, turn), WINDOW="manual", PYTHON=("functions", "calls", "modules")[turn % 3], SAMPLE="50"))
    answers.append(say("start"))
    first(); second(); gc.collect()
    answers += say("stop"), say("detach")
    while state() != before: pass
    states.append(state())
again = attach(3, OUTPUT=directory + "/late", WINDOW="manual")  # an old request: passed over
refused = attach(100, OUTPUT=directory + "/bad", WINDOW="nothing")
stop.set()
print(json.dumps([answers, states == [before] * 12, again, refused]))
"""


def test_a_process_is_armed_and_left_again_and_again(python, run_bare, program, prefix, torchprof, tmp_path, load_trace):
    done = run_bare([python.path, program(ITSELF), prefix / "lib" / "torchprof" / "libtorchprof.so", tmp_path])
    assert (done.returncode, done.stderr) == (0, b"")
    answers, is_as_before, again, refused = json.loads(done.stdout)
    assert answers == ["ok", "ok: open, window 1", "ok: closed, 1 window so far", "ok: detached"] * 12
    assert is_as_before and again == "ok" and not (tmp_path / "late").exists() and not list(tmp_path.rglob("*.ctl"))
    assert refused.startswith("error: TORCHPROF_WINDOW: 'nothing' is not a window")
    for turn in 0, 1, 10, 11:  # the last ones know functions by what was defined in the first
        assert torchprof("export", tmp_path / str(turn), "--format", "kineto", "-o", tmp_path / "trace.json").returncode == 0
        names = load_trace(tmp_path / "trace.json").names("python_function")
        if turn % 3 == 2:
            assert not names["program.py(19): second"]
        else:
            assert names["program.py(19): second"] == 1 and names["program.py(18): first"] >= 1, names
            assert (names["<built-in function collect>"] == 1) == (turn % 3 == 1)
