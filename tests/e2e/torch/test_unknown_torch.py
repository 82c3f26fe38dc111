"""A torch whose layouts are not in the tables, or not what the tables say: what is known is recorded, what is missing is said."""
import json
import re
import shutil
import struct

import pytest

from conftest import profile, torch_here

# Parts of the rows as they lie in the library (tracer/objects/layouts.cpp): written over, this torch is an unknown one.
RECORD_FUNCTION_ROWS = [struct.pack("<4Q", 200, 248, 256, 264), struct.pack("<4Q", 200, 304, 312, 320)]
OBJECT_ROWS = [struct.pack("<2QB7x", *row) for row in ((24, 72, 0), (24, 72, 1), (16, 64, 1), (16, 56, 1))]
TAG_ROWS = [struct.pack("<7I", *row) for row in ((3, 4, 5, 8, 10, 12, 2), (3, 4, 5, 9, 11, 13, 3), (3, 4, 5, 10, 12, 14, 3))]
# What this torch's own row could be taken for: the sizes a word before or behind, the other header, the other device.
NEIGHBOURS = [(24, 64, 0), (24, 80, 0), (16, 72, 1), (16, 48, 1), (24, 56, 1), (24, 64, 1), (16, 72, 0), (16, 64, 0), (16, 56, 0)]
UNDEFINED = b"_ZN3c1019UndefinedTensorImpl10_singletonE"
OWN_ROW = {"1.13": 0, "2.6": 2, "2.14": 3, "2.15": 3}

TRAINING = """
import threading, torch
def train():
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
thread = threading.Thread(target=train)
thread.start()
train()
thread.join()
"""


def without(rows):
    return [(row, bytes(len(row))) for row in rows]


@pytest.fixture
def tree_with_other_rows(prefix, tmp_path):
    """tree_with_other_rows([(ROW, OTHER), ...]) is the installed tree with rows of its library written over."""
    def make(changes):
        tree = tmp_path / "tree"
        shutil.copytree(prefix, tree)
        library = tree / "lib" / "torchprof" / "libtorchprof.so"
        code = library.read_bytes()
        for row, other in changes:
            assert code.count(row) == 1
            code = code.replace(row, other)
        library.write_bytes(code)
        return tree / "bin" / "torchprof"
    return make


@pytest.fixture
def own_row():
    """Which of OBJECT_ROWS is this torch's."""
    return OWN_ROW["%d.%d" % torch_here()[0]]


@pytest.fixture
def train(tree_with_other_rows, torch_python, check_trace, tmp_path):
    def run(changes, program=TRAINING):
        run = profile(tree_with_other_rows(changes), tmp_path / "run", [torch_python, "-c", program])
        assert run.status == 0, run.stderr
        return run, check_trace(run.trace())
    return run


def names_times_and_python(trace):
    """What no layout is needed for, on both threads: operators within the functions of Python that called them."""
    trains = [e for e in trace.spans("python_function") if e["name"].endswith(": train")]
    assert len({e["tid"] for e in trains}) == 2
    for span in trains:
        names = [e["name"] for e in trace.inside(span, "cpu_op")]
        assert names.count("aten::addmm") == names.count("AddmmBackward0") == 3
        modules = [e for e in trace.inside(span, "python_function") if e["name"].startswith("nn.Module: Linear")]
        assert len(modules) == 3 and all("aten::addmm" in {e["name"] for e in trace.inside(m, "cpu_op")} for m in modules)
    return [e for e in trace.spans("cpu_op") if e["name"] == "aten::addmm"]


def about_torch(run):
    """The library's own lines, and what run.json says of its sources."""
    process, = json.loads((run.directory / "run.json").read_text())["processes"]
    lines = re.findall(r"(?m)^torchprof: (?:this torch|of operators|shapes|inputs).*", run.stderr)
    return lines, {name: (source["state"], source["detail"]) for name, source in process["sources"].items()}


@pytest.mark.once
def test_a_torch_of_an_unknown_record_function_gives_names_times_and_python(train):
    run, trace = train(without(RECORD_FUNCTION_ROWS))
    for addmm in names_times_and_python(trace):
        assert not {"Input Dims", "Sequence number", "Overload name"} & addmm["args"].keys()
    lines, sources = about_torch(run)
    assert lines == ["torchprof: this torch's RecordFunction is not one that this version knows: names and times only"]
    assert sources["operators"][0] == "on" and "no sequence numbers, no handles" in sources["operators"][1]
    assert sources["inputs"] == ("failed", "this torch's RecordFunction is not known")


def shapes_are_right(trace):
    """Each addmm of the training has its sizes, and so have the parameters of its module."""
    for addmm in names_times_and_python(trace):
        dims = addmm["args"]["Input Dims"]
        assert dims[:3] == [[4], [2, 3], [3, 4]] and addmm["args"]["Input type"][:3] == ["float"] * 3, dims
    process, = trace.doc["torchprof"]["processes"]
    parameters = [[(p["name"], p["shape"], p["type"]) for p in m.get("parameters", [])] for m in process["modules"]]
    assert parameters == [[("weight", [4, 3], "float"), ("bias", [4], "float")]] * 2


# A torch that says to be another one: what is loaded first under a name without a version gives its name to all that need it.
PRETENDING = """
import ctypes
ctypes.CDLL({library!r})
""" + TRAINING


def test_a_torch_is_read_whatever_its_version_says(train, torch_python, run_bare, tmp_path):
    find = "import glob, os, torch; print(glob.glob('/usr/lib/*/libtorch_cpu.so.?.*')[0])"
    real = run_bare([torch_python, "-c", find]).stdout.decode().strip()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_cpu.so").symlink_to(real)
    (tmp_path / "version.py").write_text("__version__ = '3.0.0'\n")
    run, trace = train([], PRETENDING.format(library=str(tmp_path / "lib" / "libtorch_cpu.so")))
    shapes_are_right(trace)
    lines, sources = about_torch(run)
    assert lines == [] and sources["inputs"][0] == sources["modules"][0] == "on"
    assert "the version says 3.0; 0 operators before went without inputs" in sources["inputs"][1]
    assert re.match(r"tensors as in torch \S+.* \(seen \d+ times, and in the undefined one\), values as in torch .* \(seen \d+ times\)", sources["inputs"][1])


RANGES = PRETENDING + """
odd = torch._C._profiler._RecordFunctionFast("odd range")
for _ in range(3):
    with odd: torch.ones(1)
"""


def test_ranges_that_only_torch_profiler_has_are_recorded_where_the_code_of_a_newer_torch_shows_how(train, torch_python, run_bare, tmp_path):
    if torch_here()[0] < (2, 1):
        pytest.skip("this torch has none")
    find = "import glob, torch; print(*glob.glob('/usr/lib/*/libtorch_cpu.so.?.*')[:1])"
    real = run_bare([torch_python, "-c", find]).stdout.decode().strip()
    if not real:
        pytest.skip("a wheel's library does not find its neighbours by another name")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_cpu.so").symlink_to(real)
    (tmp_path / "version.py").write_text("__version__ = '3.0.0'\n")
    run, trace = train([], RANGES.format(library=str(tmp_path / "lib" / "libtorch_cpu.so")))
    assert about_torch(run)[1]["fast ranges"][0] == "on", run.stderr
    assert trace.names("user_annotation")["odd range"] + trace.names("cpu_op")["odd range"] == 3


@pytest.mark.parametrize("first", [0, 4])
def test_a_wrong_layout_among_the_known_ones_does_not_win(train, own_row, first):
    others = [row for i, row in enumerate(OBJECT_ROWS) if i != own_row]
    run, trace = train([(row, struct.pack("<2QB7x", *wrong)) for row, wrong in zip(others, NEIGHBOURS[first:])])
    shapes_are_right(trace)
    assert about_torch(run)[0] == []


def test_without_the_undefined_tensor_a_few_operators_go_without_inputs_and_are_counted(train):
    run, trace = train([(UNDEFINED, UNDEFINED[:-1] + b"X")])
    shapes_are_right(trace)
    lines, sources = about_torch(run)
    said = re.search(r"\(seen \d+ times\), values .*; (\d+) operators before went without inputs$", sources["inputs"][1])
    assert lines == [] and 1 <= int(said[1]) <= 20


def test_a_torch_whose_tensors_are_in_no_row_gives_all_but_what_tensors_hold(train):
    run, trace = train(without(OBJECT_ROWS))
    for addmm in names_times_and_python(trace):
        assert "Sequence number" in addmm["args"] and "Input Dims" not in addmm["args"]
    lines, sources = about_torch(run)
    assert lines == ["torchprof: shapes and inputs of operators are not recorded: no layout that is known fits the tensors of this torch"]
    assert sources["inputs"][0] == sources["modules"][0] == "failed" and "no layout" in sources["inputs"][1]


def test_a_torch_whose_values_are_in_no_row_gives_what_tensors_hold(train):
    run, trace = train(without(TAG_ROWS))
    shapes_are_right(trace)
    lists = [e["args"]["Concrete Inputs"][0] for e in trace.spans("cpu_op") if e["name"] == "aten::ones" and "Concrete Inputs" in e["args"]]
    assert set(lists) <= {""}
    lines, sources = about_torch(run)
    assert lines == [] and "other values as in none that is known: left out" in sources["inputs"][1]


def test_a_torch_of_which_nothing_is_known_gives_names_times_and_python(train):
    run, trace = train(without(RECORD_FUNCTION_ROWS) + without(OBJECT_ROWS))
    names_times_and_python(trace)
    lines, sources = about_torch(run)
    assert len(lines) == 1
    assert sources["inputs"][0] == sources["modules"][0] == "failed"


@pytest.mark.once
def test_a_torch_that_only_wrong_layouts_are_known_of_is_not_read(train, own_row):
    header, sizes = struct.unpack_from("<2Q", OBJECT_ROWS[own_row])
    wrong = [(header, sizes + 16, 1), (header, 40, 1), (40 - header, sizes, 1), (40 - header, sizes, 0)]
    run, trace = train([(row, struct.pack("<2QB7x", *other)) for row, other in zip(OBJECT_ROWS, wrong)])
    for addmm in names_times_and_python(trace):
        assert "Input Dims" not in addmm["args"]
    lines, sources = about_torch(run)
    assert len(lines) == 1 and "no layout that is known fits" in lines[0]
    assert sources["inputs"][0] == sources["modules"][0] == "failed"


def test_doctor_says_which_rows_were_chosen_and_why(torchprof, torch_python):
    done = torchprof("doctor", "--", torch_python)
    assert re.search(r"(?m)^ +torch\.RecordFunction: row [\d.]+ (to|and) \S+, C\+\+11 strings, because _setAsync\(\) stores byte \d+$", done.stdout)
    found = r"tensors as in torch [\d.]+( to [\d.]+)? \(seen \d+ times, and in the undefined one\), values as in torch [\d.]+( to [\d.]+)? \(seen \d+ times\)"
    assert re.search(rf"(?m)^ +torch\.IValue: {found}; the version says \d+\.\d+; 0 operators before went without inputs$", done.stdout)
    assert re.search(r"(?m)^ +torch\.check: \d+ operators read as torch's own functions say", done.stdout)


def test_doctor_says_that_there_is_no_row(tree_with_other_rows, run_bare, torch_python):
    done = run_bare([tree_with_other_rows(without(RECORD_FUNCTION_ROWS) + without(OBJECT_ROWS)), "doctor", "--", torch_python])
    text = done.stdout.decode()
    assert re.search(r"torch\.RecordFunction: no row: _setAsync\(\) stores byte \d+, which is in none\n", text)
    assert re.search(r"(?m)^  inputs +failed: this torch's RecordFunction is not known$", text) and text.endswith("A capture would work.\n")
