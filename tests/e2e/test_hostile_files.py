"""What a command is given may hold anything: it ends in a table or in one line that says why not, never in a signal."""
import gzip
import json
import sqlite3

import pytest

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


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"{", b"[", b'{"traceEvents":[', b"\x1f\x8b", gzip.compress(b'{"traceEvents":[' + b" " * 9999)[:40],
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
