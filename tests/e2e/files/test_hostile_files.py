"""What a command is given may hold anything: it ends in a table or in one line that says why not, never in a signal."""
import concurrent.futures
import gzip
import json
import os
import re
import resource
import shutil
import socket
import sqlite3
import subprocess

import pytest
from conftest import PATIENCE

pytestmark = pytest.mark.once

EVENT = '{"ph":"X","cat":"cpu_op","name":"kept","pid":1,"tid":1,"ts":1,"dur":2,"args":{}}'
DEEP = 200_000

# {what it is: the text of a value}
VALUES = {
    "deep lists": "[" * DEEP + "]" * DEEP,
    "deep objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "a lone surrogate": '"\\ud800"',
    "a low surrogate first": '"\\udc00\\ud800"',
    "control characters": '"\\u0000\\u0007\\u001b[31m\\n"',
    "1e300": "1e300",
    "-1e300": "-1e300",
    "more than a double": "1e999",
    "a number of 10,000 digits": "9" * 10_000,
    "NaN": "NaN",
    "Infinity": "Infinity",
    "null": "null",
    "another type": '{"a":[true]}',
}


def within(keys, value):
    """An object; a key that is empty is the one element of a list."""
    for key in reversed(keys):
        value = {key: value} if key else [{"open": [], **value} if isinstance(value, dict) else value]
    return value


def is_orderly(done):
    """0, or 125 and one line; no control characters either way."""
    lines = done.stderr.splitlines()
    assert done.returncode in (0, 125), (done.returncode, done.stderr[-2000:])
    assert done.returncode == 0 or len(lines) == 1 and lines[0].startswith("torchprof: "), lines
    assert not any(c < " " and c not in "\n" for c in done.stdout + done.stderr), (done.stdout, done.stderr)
    return done.returncode == 0


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", ["name", "ts", "dur", "pid", "tid", "cat", "ph", "args"])
def test_a_value_of_an_event(key, value, torchprof, tmp_path):
    hostile = json.dumps({**json.loads(EVENT), key: "HERE"}).replace('"HERE"', VALUES[value])
    (tmp_path / "trace.json").write_text('{"traceEvents":[%s,%s]}' % (EVENT, hostile))
    done = torchprof("report", tmp_path / "trace.json")
    if is_orderly(done):
        assert "kept" in done.stdout
    is_orderly(torchprof("diff", tmp_path / "trace.json", tmp_path / "trace.json", "--fail-over", 1, "--metric", "total"))


def test_keys_that_come_twice_hold_the_later_value(torchprof, tmp_path):
    (tmp_path / "trace.json").write_text('{"traceEvents":[%s]}' % EVENT.replace('"name":"kept"', '"name":"first","name":"kept"'))
    done = torchprof("report", tmp_path / "trace.json")
    assert is_orderly(done) and "kept" in done.stdout and "first" not in done.stdout


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"{", b"[", b'{"traceEvents":[', b"\x1f\x8b", gzip.compress(b'{"traceEvents":[' + b" " * 9999, mtime=0)[:40],
                                     b"\n", b"\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"SQLite format 3\0", b"SQLite format 3\0" + b"\xff" * 5000, b"\xef\xbb\xbf{}",
                                     b"PK\x03\x04", b"\x7fELF", bytes(range(256)) * 40])
def test_what_is_no_trace_at_all(content, torchprof, tmp_path):
    (tmp_path / "file").write_bytes(content)
    for command in (["report"], ["export", "--format", "table", "-o", tmp_path / "out"], ["where"], ["diff", tmp_path / "file"]):
        done = torchprof(*command, tmp_path / "file")
        assert not is_orderly(done) and str(tmp_path / "file") in done.stderr


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", ["torchprof", "took_ns", "took_ns/load", "processes", "processes/", "processes//open", "processes//windows", "command", "files", "start",
                                 "end", "exported"])
def test_run_json(key, value, torchprof, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "h_1.pt.trace.json").write_text('{"traceEvents":[%s]}' % EVENT)
    info = {"torchprof": "1", **within(key.split("/"), "HERE")}
    (run / "run.json").write_text(json.dumps(info).replace('"HERE"', VALUES[value]))
    for command in (["report"], ["where"], ["export", "--format", "table", "-o", tmp_path / "out"]):
        is_orderly(torchprof(*command, run))


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", ["step", "fail_over", "ops", "memory"])
def test_a_budget(key, value, torchprof, tmp_path):
    (tmp_path / "trace.json").write_text('{"traceEvents":[%s]}' % EVENT)
    (tmp_path / "budget.json").write_text(json.dumps({key: "HERE"}).replace('"HERE"', VALUES[value]))
    is_orderly(torchprof("diff", tmp_path / "trace.json", tmp_path / "trace.json", "--budget", tmp_path / "budget.json"))


@pytest.mark.parametrize("value", ["\0\a\x1b[31m", "\ud800".encode("utf-8", "surrogatepass"), 1e300, -1e300, float("inf"), 2**63 - 1, -2**63, None, b"\xff\0\xff"])
@pytest.mark.parametrize("column", ["start", "end", "eventType", "text", "globalTid"])
def test_a_value_of_a_database(column, value, torchprof, tmp_path):
    db = sqlite3.connect(tmp_path / "x.sqlite")
    db.execute("CREATE TABLE NVTX_EVENTS(start, end, eventType, text, globalTid)")
    db.execute("INSERT INTO NVTX_EVENTS VALUES(1000, 3000, 59, 'kept', 1), (1000, 3000, 59, 'mm', 1)")
    db.execute("UPDATE NVTX_EVENTS SET %s = %s WHERE text = 'mm'" % (column, "CAST(? AS TEXT)" if isinstance(value, bytes) else "?"), (value,))
    db.commit()
    done = torchprof("report", tmp_path / "x.sqlite")
    if is_orderly(done):
        assert "kept" in done.stdout


def special(kind, path):
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.relpath(path))
    else:
        path.symlink_to("/dev/zero" if kind == "a device" else "/dev/tty")


@pytest.mark.parametrize("kind", ["a FIFO", "a socket", "a device", "a terminal"])
def test_what_is_no_file_among_a_runs_files_is_not_waited_for(kind, torchprof, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, lies_at in {"info": "run.json", "spool": "spool/h.1.1.spool", "untraced": "spool/untraced", "trace": "merged.pt.trace.json.gz", "one": "h_1.pt.trace.json",
                          "perfetto": "merged.perfetto-trace"}.items():
        run = tmp_path / name
        (run / "spool").mkdir(parents=True)
        if name != "info":
            (run / "run.json").write_text('{"torchprof":"1"}')
        special(kind, run / lies_at)
        trace = tmp_path / "good.json"
        trace.write_text('{"traceEvents":[%s]}' % EVENT)
        for command in (["report", run], ["report", "--html", tmp_path / "page.html", run], ["export", "--format", "kineto", "-o", tmp_path / "out", run], ["export", run],
                        ["where", run], ["ctl", run, "start"], ["diff", run, trace], ["diff", trace, run], ["merge", run, trace, "-o", tmp_path / "merged"]):
            done = torchprof(*command)
            assert done.returncode in (0, 1, 125) and done.stderr.startswith("torchprof: "), (command, done.stdout, done.stderr)
    special(kind, tmp_path / "given")
    for command in (["report"], ["export", "--format", "kineto", "-o", tmp_path / "out"], ["where"], ["diff", trace], ["diff", trace, trace, "--budget"]):
        done = torchprof(*command, tmp_path / "given")
        assert not is_orderly(done) and re.search("given.*: it is a (FIFO|socket|device)", done.stderr), done.stderr


def test_a_pipe_as_an_argument_is_a_line(torchprof, tmp_path, launcher):
    for how in ("cat trace.json | %s report /dev/stdin", "%s report <(cat trace.json)", "exec 9< <(cat trace.json); %s diff trace.json /dev/fd/9"):
        (tmp_path / "trace.json").write_text('{"traceEvents":[%s]}' % EVENT)
        done = subprocess.run(["bash", "-c", how % launcher], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
        assert not is_orderly(done) and "it is a FIFO (a pipe), not a file: save its content to a file first" in done.stderr
    assert "kept" in subprocess.run(["bash", "-c", "%s report /dev/stdin < trace.json" % launcher], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE).stdout


INFO = {"torchprof": "1", "command": ["python3", "x.py"], "directory": "/d", "environment": {"TORCHPROF_X": "1"}, "host": "h", "kernel": "k", "cpus": 2, "launcher": 5,
        "start": "2026-01-01T00:00:00.000000Z", "start_ns": 5, "end": "2026-01-01T00:00:01.000000Z", "seconds": 1.5, "exit_status": 0, "signal": 9, "signal_name": "SIGKILL",
        "oom_kills": 1, "files": ["h_1.pt.trace.json"], "exported": True, "untraced": [{"program": "p", "reason": "r", "times": 1}], "unreadable": [],
        "still_running": [{"pid": 3, "command": ["sh"], "traced": False, "role": "r"}], "took_ns": {"load": 5},
        "processes": [{"pid": 7, "parent_pid": 1, "host": "h", "role": "rank 0", "command": ["python3"], "clean_exit": False, "running": False, "metadata": {"window": "manual"},
                       "windows": [{"number": 1, "closed": True}], "lost": {"x": 1}, "sources": {"s": {"state": "on", "detail": ""}},
                       "open": [{"tid": 8, "name": "main", "last": 0.5, "spans": [{"name": "f", "seconds": 12.5}], "deeper": 9}]}]}
TRACE = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "torchprof": {"version": "1", "processes": [{"pid": 1, "modules": [{"name": "nn.Module: L_0", "path": "out"}]}]},
         "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "kept", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {"External id": 1, "Module": "L", "FLOPs": 5}},
                         {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"External id": 1, "device": 0, "blocks per SM": 0.5}},
                         {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1, "args": {"Bytes": 5, "Addr": 1, "Device Type": 0, "Device Id": 0,
                                                                                                                           "Total Allocated": 5}},
                         {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python3"}}]}
OTHER = ["text", -5, 1.5, 2 ** 64, 1e300, True, None, ["a"], {"a": 1}]


def each_key(value, path=()):
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from each_key(value[key], (*path, key))


def replaced(value, path, by):
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = by
    return json.dumps(copy)


def in_parallel(cases, check):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(check, cases))


@pytest.mark.slow
def test_each_key_of_run_json_with_each_other_type(torchprof, tmp_path):
    """The trace is read, a line names file and key; no exception's own words."""
    def check(case):
        number, (path, other) = case
        run = tmp_path / str(number)
        (run / "spool").mkdir(parents=True)
        (run / "h_1.pt.trace.json").write_text('{"traceEvents":[%s]}' % EVENT)
        (run / "run.json").write_text(replaced(INFO, path, other))
        for command in (["report", run], ["where", run]):
            done = torchprof(*command)
            assert done.returncode in (0, 125) and "json.exception" not in done.stdout + done.stderr and "unexpected content" not in done.stderr, (path, other, done.stderr)
            assert not done.stderr or command[0] == "where" or re.match("torchprof: .*run.json: '.*' is .*, not .*: not read", done.stderr), (path, other, done.stderr)
            assert command[0] == "where" or "kept" in done.stdout, (path, other, done.stderr)
        shutil.rmtree(run)
    in_parallel(enumerate((path, other) for path in each_key(INFO) for other in OTHER), check)


def test_a_key_of_run_json_of_another_type_is_named(torchprof, tmp_path):
    (tmp_path / "run" / "spool").mkdir(parents=True)
    (tmp_path / "run" / "h_1.pt.trace.json").write_text('{"traceEvents":[%s]}' % EVENT)
    for path, other, said in ((["processes", 0, "pid"], "x", "'processes/0/pid' is a text, not a whole number in its range"), (["exported"], [1], "'exported' is a list, not true or false"),
                              (["took_ns"], 5, "'took_ns' is a number, not an object"), (["still_running", 0], None, "'still_running/0' is null, not an object")):
        (tmp_path / "run" / "run.json").write_text(replaced(INFO, path, other))
        done = torchprof("report", tmp_path / "run")
        assert (done.returncode, done.stderr) == (0, "torchprof: %s: %s: not read\n" % (tmp_path / "run" / "run.json", said)) and "kept" in done.stdout


@pytest.mark.slow
def test_each_key_of_a_trace_with_each_other_type(torchprof, tmp_path):
    def check(case):
        number, (path, other) = case
        file = tmp_path / ("%d.json" % number)
        file.write_text(replaced(TRACE, path, other))
        done = torchprof("report", file)
        assert is_orderly(done) or "traceEvents" in path, (path, other, done.stderr)
        assert "json.exception" not in done.stderr
        file.unlink()
    in_parallel(enumerate((path, other) for path in each_key(TRACE) for other in OTHER), check)


@pytest.mark.parametrize("what", ["a text", "a number", "white space", "a key"])
def test_a_value_that_is_very_long_is_a_line_and_little_memory(what, launcher, tmp_path):
    begin, fill, end = {"a text": ('{"traceEvents":[{"name":"', "a", '"}]}'), "a number": ('{"traceEvents":[{"ts":1', "0", "}]}"),
                        "white space": ('{"traceEvents":', " ", "[]}"), "a key": ('{"', "a", '":1}')}[what]
    with gzip.open(tmp_path / "x.json.gz", "wt", compresslevel=1) as file:
        file.write(begin)
        for _ in range(300):
            file.write(fill * (1 << 20))
        file.write(end)
    done = subprocess.run([launcher, "report", tmp_path / "x.json.gz"], capture_output=True, text=True, timeout=PATIENCE,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20)))
    assert not is_orderly(done) and "x.json.gz: one value in it is longer than 64 MiB" in done.stderr


def test_where_memory_runs_out_a_line_says_so(launcher, tmp_path):
    with (tmp_path / "x.json").open("w") as file:
        file.write('{"traceEvents":[%s]}' % ",".join(EVENT.replace("kept", "name %d" % i) for i in range(100_000)))
    done = subprocess.run([launcher, "report", tmp_path / "x.json"], capture_output=True, text=True, timeout=PATIENCE,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (32 << 20, 32 << 20)))
    assert not is_orderly(done) and "memory ran out" in done.stderr


def test_a_file_of_very_many_processes_has_the_later_ones_as_one(torchprof, tmp_path):
    events = [{"ph": "X", "cat": "cpu_op", "name": "mm", "pid": pid, "tid": 1, "ts": pid, "dur": 1} for pid in range(10_500)]
    (tmp_path / "many.json").write_text(json.dumps({"traceEvents": events}))
    done = torchprof("report", "many.json", "-t", "processes,ops", "--json")
    report = json.loads(done.stdout)
    assert "more than 10,000 processes" in done.stdout and report["tables"]
    operators = [row for table in report["tables"] if table["name"] == "ops" and not table.get("process") for row in table["rows"]]
    assert sum(row["calls"] for row in operators if row["name"] == "mm") >= 10_500


def test_slices_nested_very_deep_are_counted_and_their_tables_still_come(torchprof, tmp_path):
    depth = 50_000
    events = [{"ph": "X", "cat": "python_function", "name": "torch/f.py(1): f", "pid": 1, "tid": 1, "ts": i, "dur": 2 * (depth - i)} for i in range(depth)]
    (tmp_path / "deep.json").write_text(json.dumps({"traceEvents": events}))
    done = torchprof("report", "deep.json", "-t", "advice,critical,python")
    assert "45,904 slices inside of 4,096 others: not in advice, the critical path and launches" in done.stdout
    assert "50,000" in done.stdout and done.returncode == 0
