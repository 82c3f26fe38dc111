"""A torch whose layouts are not in the tables, or not what the tables say: what is known is recorded, what is missing is said."""
import json
import re
import shutil
import struct

import pytest

from conftest import profile

# Parts of the rows as they lie in the library (tracer/torch_layouts.cpp): written over, this torch is an unknown one.
RECORD_FUNCTION_ROWS = [struct.pack("<4Q", 200, 248, 256, 264), struct.pack("<4Q", 200, 304, 312, 320)]
VALUE_ROWS = [struct.pack("<2I2Q", *row) for row in ((113, 113, 24, 72), (203, 208, 16, 64), (210, 214, 16, 56))]
WRONG_VALUE_ROWS = {
    "sizes lie elsewhere": [row[:-8] + struct.pack("<Q", 96) for row in VALUE_ROWS],
    "headers are longer or shorter": [row[:8] + struct.pack("<Q", 40 - struct.unpack("<2I2Q", row)[2]) + row[16:] for row in VALUE_ROWS],
}

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
def train(tree_with_other_rows, torch_python, check_trace, tmp_path):
    def run(changes):
        run = profile(tree_with_other_rows(changes), tmp_path / "run", [torch_python, "-c", TRAINING])
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


def test_a_torch_of_an_unknown_record_function_gives_names_times_and_python(train):
    run, trace = train(without(RECORD_FUNCTION_ROWS))
    for addmm in names_times_and_python(trace):
        assert not {"Input Dims", "Sequence number", "Overload name"} & addmm["args"].keys()
    lines, sources = about_torch(run)
    assert lines == ["torchprof: this torch's RecordFunction is not one that this version knows: names and times only"]
    assert sources["operators"][0] == "on" and "no sequence numbers, no handles" in sources["operators"][1]
    assert sources["inputs"] == ("failed", "this torch's RecordFunction is not known")


def test_a_torch_of_an_unknown_version_gives_all_but_what_tensors_hold(train):
    run, trace = train(without(VALUE_ROWS))
    for addmm in names_times_and_python(trace):
        assert "Sequence number" in addmm["args"] and "Input Dims" not in addmm["args"]
    lines, sources = about_torch(run)
    assert len(lines) == 1
    assert re.fullmatch(r"torchprof: shapes and inputs of operators are not recorded: no layout of tensors is known for this torch \(\d\.\d+\)", lines[0])
    assert sources["inputs"][0] == sources["modules"][0] == "failed" and "no layout" in sources["inputs"][1]


def test_a_torch_of_which_nothing_is_known_gives_names_times_and_python(train):
    run, trace = train(without(RECORD_FUNCTION_ROWS) + without(VALUE_ROWS))
    names_times_and_python(trace)
    lines, sources = about_torch(run)
    assert len(lines) == 1
    assert sources["inputs"][0] == sources["modules"][0] == "failed"


@pytest.mark.parametrize("wrong", WRONG_VALUE_ROWS)
def test_a_layout_that_does_not_hold_is_found_out_at_the_first_tensor(train, wrong):
    run, trace = train(list(zip(VALUE_ROWS, WRONG_VALUE_ROWS[wrong])))
    for addmm in names_times_and_python(trace):
        assert "Input Dims" not in addmm["args"]
    lines, sources = about_torch(run)
    assert len(lines) == 1 and "inputs of operators are no longer recorded" in lines[0]
    assert sources["inputs"][0] == "failed"


def test_doctor_says_which_rows_were_chosen_and_why(torchprof, torch_python):
    done = torchprof("doctor", "--", torch_python)
    assert re.search(r"(?m)^ +torch\.RecordFunction: row [\d.]+ (to|and) \S+, C\+\+11 strings, because _setAsync\(\) stores byte \d+$", done.stdout)
    assert re.search(r"(?m)^ +torch\.IValue: row [\d.]+( to [\d.]+)?, because of the version$", done.stdout)
    assert re.search(r"(?m)^ +torch\.check: \d+ operators read as torch's own functions say", done.stdout)


def test_doctor_says_that_there_is_no_row(tree_with_other_rows, run_bare, torch_python):
    done = run_bare([tree_with_other_rows(without(RECORD_FUNCTION_ROWS) + without(VALUE_ROWS)), "doctor", "--", torch_python])
    text = done.stdout.decode()
    assert re.search(r"torch\.RecordFunction: no row: _setAsync\(\) stores byte \d+, which is in none\n", text)
    assert "torch.IValue: no row for this version\n" in text
    assert re.search(r"(?m)^  inputs +failed: this torch's RecordFunction is not known$", text) and text.endswith("A capture would work.\n")
