"""The tests' own checkers find what they should: each fault is planted once."""
import copy
import json
import re
import subprocess
import sys

import pytest

import trace_rules
from conftest import ROOT

PID, TID = 100, 101


def slice_of(category, name, ts, dur, tid=TID, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": PID, "tid": tid, "ts": ts, "dur": dur, "args": args}


def flow(ph, ts, tid=TID, **more):
    return {"ph": ph, "id": 1, "pid": PID, "tid": tid, "ts": ts, "cat": "fwdbwd", "name": "fwdbwd", **more}


def good():
    """A trace of one thread that keeps every rule: a Python function with an operator and its backward."""
    return {
        "schemaVersion": 1, "deviceProperties": [], "displayTimeUnit": "ms", "baseTimeNanoseconds": 86400 * 10**9 * 20000,
        "traceEvents": [
            {"ph": "M", "name": "process_name", "ts": 0, "pid": PID, "tid": 0, "args": {"name": "python3"}},
            {"ph": "M", "name": "process_labels", "ts": 0, "pid": PID, "tid": 0, "args": {"labels": "CPU"}},
            {"ph": "M", "name": "process_sort_index", "ts": 0, "pid": PID, "tid": 0, "args": {"sort_index": PID}},
            {"ph": "M", "name": "thread_name", "ts": 0, "pid": PID, "tid": TID, "args": {"name": "thread 101 (python3)"}},
            slice_of("python_function", "a.py(1): f", 10.5, 80.5, **{"Ev Idx": 0, "Python id": 1, "Python parent id": None}),
            slice_of("python_function", "a.py(2): g", 10.5, 40.25, **{"Ev Idx": 1, "Python id": 2, "Python parent id": 1}),
            slice_of("cpu_op", "aten::mul", 20.125, 10.5, **{"Ev Idx": 2, "External id": 1, "Sequence number": 7}),
            flow("s", 20.125),
            slice_of("cpu_op", "MulBackward0", 60.5, 10.5, **{"Ev Idx": 3, "External id": 2, "Sequence number": 7}),
            flow("f", 60.5, bp="e"),
            {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 5.5, "dur": 100.5,
             "args": {"Op count": 0}},
            {"ph": "M", "name": "process_sort_index", "ts": 0, "pid": "Spans", "tid": 0, "args": {"sort_index": 536870912}},
            {"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": 5.5},
            {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 106.5}],
        "traceName": "/tmp/x.pt.trace.json"}


def written(path, doc):
    # Three decimals, as the format wants them: the numbers above are exact in binary.
    path.write_text(re.sub(r'("(?:ts|dur)": -?\d+\.)(\d+)', lambda number: number[1] + number[2].ljust(3, "0"), json.dumps(doc)))
    return path


def events(doc, name):
    return [e for e in doc["traceEvents"] if e["name"] == name]


def set_key(name, key, value, index=0):
    def plant(doc):
        event = events(doc, name)[index]
        (event["args"] if key in event.get("args", {}) or key[0].isupper() else event)[key] = value
    return plant


def remove(name, index=0):
    return lambda doc: doc["traceEvents"].remove(events(doc, name)[index])


PLANTED = {
    "no schemaVersion": (lambda doc: doc.pop("schemaVersion"), "top_level: schemaVersion is missing"),
    "traceName in the middle": (lambda doc: doc.update(last=1), "top_level: traceName does not come last"),
    "an odd base": (lambda doc: doc.update(baseTimeNanoseconds=12345), "top_level: baseTimeNanoseconds"),
    "a negative duration": (set_key("aten::mul", "dur", -1.5), "shape: a slice wants"),
    "a slice without a category": (lambda doc: events(doc, "aten::mul")[0].pop("cat"), "shape: a slice wants"),
    "a time before the base": (set_key("aten::mul", "ts", -1.5), "shape: ts is not"),
    "a thread without a name": (remove("thread_name"), "rows: thread 101"),
    "a process without a label": (remove("process_labels"), "rows: process 100 has no process_labels"),
    "a slice that sticks out": (set_key("aten::mul", "dur", 35.5), "nesting: aten::mul"),
    "a child outside its parent": (set_key("a.py(1): f", "Python parent id", 2), "python_parents: a.py(1): f does not lie in"),
    "a parent that is nowhere": (set_key("a.py(2): g", "Python parent id", 9), "python_parents: a.py(2): g"),
    "a Python id twice": (set_key("a.py(2): g", "Python id", 1), "python_parents: Python id"),
    "an external id twice": (set_key("MulBackward0", "External id", 1), "ids: External id 1 comes 2 times"),
    "an index twice": (set_key("MulBackward0", "Ev Idx", 2), "ids: Ev Idx 2 comes 2 times"),
    "a flow that does not end": (remove("fwdbwd", 1), "flows: flow fwdbwd 1 starts 1 times and ends 0 times"),
    "a flow without bp": (lambda doc: events(doc, "fwdbwd")[1].pop("bp"), "flows: a flow that ends wants bp"),
    "a flow in no slice": (set_key("fwdbwd", "ts", 2.5), "flows: a flow lies in no slice"),
    "a flow beside its operator": (set_key("fwdbwd", "ts", 25.5), "flows: flow fwdbwd 1: no operator"),
    "a flow between strangers": (set_key("MulBackward0", "Sequence number", 8), "flows: flow 1 joins operators"),
    "a tail in disorder": (lambda doc: doc["traceEvents"].reverse(), "tail: "),
    "an event after the end": (set_key("Record Window End", "ts", 70.5), "tail: outside the window"),
}


def test_a_good_trace_breaks_no_rule(tmp_path):
    trace = trace_rules.Trace(written(tmp_path / "good.json", good()))
    assert trace_rules.broken_rules(trace) == []
    assert trace.flows("fwdbwd") == {("aten::mul", "MulBackward0"): 1}
    assert trace.parents() == [("a.py(1): f", None), ("a.py(2): g", "a.py(1): f")]


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(tmp_path, fault):
    plant, line = PLANTED[fault]
    doc = copy.deepcopy(good())
    plant(doc)
    broken = trace_rules.broken_rules(trace_rules.Trace(written(tmp_path / "bad.json", doc)))
    assert [found for found in broken if found.startswith(line)], broken


@pytest.mark.parametrize("text", ['{"traceEvents": [], "traceEvents": []}', '{"traceEvents": [NaN]}', '{"traceEvents": ["\x01"]}', '{"traceEvents": ['])
def test_text_that_is_not_strict_json_is_refused(tmp_path, text):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError):
        trace_rules.Trace(tmp_path / "bad.json")


LOGS = {
    "all passed": ('{"result": "OK", "stdout": "[doctest] test cases: 12 | 12 passed | 0 failed | 0 skipped"}', 0, "12 passed, 0 failed"),
    "a case failed": ('{"result": "FAIL", "stdout": "[doctest] test cases: 12 | 11 passed | 1 failed | 0 skipped"}', 1, "11 passed, 1 failed"),
    "a program died": ('{"result": "FAIL", "stdout": ""}', 1, "0 passed, 1 failed"),
    "all passed and then it died": ('{"result": "FAIL", "stdout": "[doctest] test cases: 2 | 2 passed | 0 failed |"}', 1, "2 passed, 1 failed"),
    "nothing was tested": ("", 1, "0 passed, 1 failed"),
}


def totals(*arguments):
    """Its exit status and its lines."""
    done = subprocess.run([sys.executable, ROOT / "tests" / "totals.py", *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("case", LOGS)
def test_totals_count_cases_and_believe_no_silence(tmp_path, case):
    text, status, last = LOGS[case]
    (tmp_path / "testlog.json").write_text(text)
    returned, lines = totals(tmp_path / "testlog.json")
    assert (returned, lines[-1]) == (status, last)


def test_totals_count_pytest_and_miss_a_missing_log(tmp_path):
    (tmp_path / "a.xml").write_text('<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>')
    for options in [], ["--chosen"]:
        status, lines = totals(*options, tmp_path / "a.xml", tmp_path / "b.xml")
        assert (status, lines[-1]) == (1, "5 passed, 3 failed")


def test_totals_count_what_measured_time_where_it_was_tested(tmp_path):
    """tests/two_passes leaves it beside the rest, or nothing where a suite has no such test."""
    (tmp_path / "a.xml").write_text('<testsuites><testsuite tests="9"/></testsuites>')
    (tmp_path / "a-timed.xml").write_text('<testsuites><testsuite tests="3" failures="1"/></testsuites>')
    (tmp_path / "b.xml").write_text('<testsuites><testsuite tests="4"/></testsuites>')
    status, lines = totals(tmp_path / "a.xml", tmp_path / "b.xml")
    assert (status, lines[-1]) == (1, "15 passed, 1 failed")


def test_totals_want_something_of_each_log_or_where_tests_were_chosen_of_one(tmp_path):
    (tmp_path / "none.xml").write_text('<testsuites><testsuite tests="0"/></testsuites>')
    (tmp_path / "some.xml").write_text('<testsuites><testsuite tests="2"/></testsuites>')
    (tmp_path / "timed.xml").write_text('<testsuites><testsuite tests="0"/></testsuites>')
    (tmp_path / "timed-timed.xml").write_text('<testsuites><testsuite tests="1"/></testsuites>')
    for arguments, status, last in ((["none.xml", "some.xml"], 1, "2 passed, 1 failed"), (["--chosen", "none.xml", "some.xml"], 0, "2 passed, 0 failed"),
                                    (["--chosen", "none.xml"], 1, "0 passed, 1 failed"), (["--chosen"], 1, "0 passed, 1 failed"),
                                    (["timed.xml"], 0, "1 passed, 0 failed")):
        returned, lines = totals(*[name if name.startswith("-") else tmp_path / name for name in arguments])
        assert (returned, lines[-1]) == (status, last), arguments


def test_totals_name_the_slowest_before_the_last_line(tmp_path):
    (tmp_path / "a.xml").write_text('<testsuites><testsuite tests="3"><testcase classname="e2e.torch.test_a" name="test_x[1]" time="2.04"/>'
                                    '<testcase classname="e2e.torch.test_a" name="test_y" time="0.5"/>'
                                    '<testcase classname="house.test_b" name="test_z" time="31.5"/></testsuite></testsuites>')
    (tmp_path / "testlog.json").write_text('{"name": "torchprof:unit+processor / recorder", "result": "OK", "duration": 3.25, "stdout": "test cases: 2 | 2 passed | 0 failed |"}')
    status, lines = totals("--slowest", "3", tmp_path / "testlog.json", tmp_path / "a.xml")
    assert status == 0 and lines[-5:] == ["the slowest:", "    31.5 s  tests/house/test_b.py::test_z", "     3.2 s  unit test recorder",
                                          "     2.0 s  tests/e2e/torch/test_a.py::test_x[1]", "5 passed, 0 failed"]
