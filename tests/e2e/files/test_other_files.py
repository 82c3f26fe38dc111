"""`torchprof report` of files that are not a run: ours in another form, and those of nvprof and nsys."""
import gzip
import json
import re
import sqlite3
import subprocess
import sys

import pytest

from conftest import profile

PROGRAM = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(3):
    net(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def report(torchprof):
    def of(path, *options):
        done = torchprof("report", path, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout
    return of


def test_a_perfetto_trace_has_the_tables_of_the_run(run_torchprof, program, torch_python, report, tmp_path):
    run = run_torchprof([torch_python, program(PROGRAM)], options=["--format", "kineto,perfetto", "--memory", "off", "--discard"])
    assert run.status == 0, run.stderr
    (run.directory / "trace.perfetto-trace").rename(tmp_path / "no name says it")
    for table in ("ops", "modules", "python", "steps"):
        of_perfetto, of_json = (report(path, "--tables", table, "--sort", "total", "--top", "40") if table != "steps" else report(path, "--tables", table)
                                for path in (tmp_path / "no name says it", run.directory))
        body = [re.sub(r"^.* in .*$", "", text, count=1, flags=re.M) for text in (of_perfetto, of_json)]
        assert body[0] == body[1] and len(body[0].splitlines()) > 3
    # Where a run has left nothing else.
    for path in run.trace_paths:
        path.unlink()
    (tmp_path / "no name says it").rename(run.directory / "trace.perfetto-trace")
    assert "aten::addmm" in report(run.directory)


def test_only_tables_are_made_of_a_file_that_is_not_json(torchprof, tmp_path):
    db = sqlite3.connect(tmp_path / "x.json")
    db.execute("CREATE TABLE NVTX_EVENTS(start, end, eventType, text, globalTid)")
    db.execute("INSERT INTO NVTX_EVENTS VALUES(1000, 3000, 59, 'unmistakable', 1)")
    db.commit()
    done = torchprof("export", tmp_path / "x.json", "--format", "kineto,table", "-o", tmp_path / "out")
    assert done.returncode == 125 and "only tables can be written from a file of this kind" in done.stderr
    assert "unmistakable" in (tmp_path / "out" / "summary.txt").read_text()


def test_nvprof_and_its_errors(torchprof, report, tmp_path):
    db = sqlite3.connect(tmp_path / "profile.nvprof")
    db.executescript("""
        CREATE TABLE StringTable(_id_ INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER(_id_ INTEGER PRIMARY KEY, flags, timestamp, id, objectKind, objectId, name, domain);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(_id_ INTEGER PRIMARY KEY, cbid, start, end, processId, threadId, correlationId, returnValue);
        CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL(_id_ INTEGER PRIMARY KEY, start, end, deviceId, correlationId, name);
        INSERT INTO StringTable VALUES(1, 'mm, seq = 5'), (2, '_Z12unmistakablePf');
        INSERT INTO CUPTI_ACTIVITY_KIND_MARKER(timestamp, id, name) VALUES(1000000, 7, 1), (5000000, 7, 0);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(1, 211, 2000000, 2100000, 1, 1, 9, 0);
        INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES(1, 2200000, 3200000, 0, 9, 2);""")
    text = report(tmp_path / "profile.nvprof", "--full-names")
    assert re.search(r"4\.000 ms .*mm$", text, re.M) and re.search(r"1\.000 ms .*unmistakable\(float\*\)$", text, re.M)
    assert re.search(r"1\.000 ms .* unmistakable$", report(tmp_path / "profile.nvprof"), re.M)
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MARKER(timestamp, id, name) VALUES(1000000, 7, 1)")
    db.commit()
    done = torchprof("report", tmp_path / "profile.nvprof")
    assert (done.returncode, done.stderr) == (125, "torchprof: cannot read the trace %s: the marker 7 is there twice\n" % (tmp_path / "profile.nvprof"))


# Ten steps with one range, `matmul`, and one kernel in it: of a run of ours, of nvprof and of nsys.
STEPPED = """
import time, torch
from torch.profiler import record_function
for i in range(10):
    with record_function("ProfilerStep#%d" % i):
        torch.empty(100)
        with record_function("matmul"):
            time.sleep(0.002)
"""


def stepped(ms):
    """(name, begin, end) of ranges and (begin, end) of kernels, in ns: `matmul` and the kernel take `ms` milliseconds."""
    spans, kernels = [], []
    for step in range(10):
        begin = step * 100_000_000
        spans += [("ProfilerStep#%d" % step, begin, begin + 90_000_000), ("matmul", begin + 1000, begin + 1000 + ms * 1_000_000)]
        kernels.append((begin + 4000, begin + 4000 + ms * 1_000_000))
    return spans, kernels


def write_nvprof(path, ms):
    spans, kernels = stepped(ms)
    db = sqlite3.connect(path)
    db.executescript("""
        CREATE TABLE StringTable(_id_ INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER(_id_ INTEGER PRIMARY KEY, timestamp, id, name);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(_id_ INTEGER PRIMARY KEY, cbid, start, end, correlationId);
        CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL(_id_ INTEGER PRIMARY KEY, start, end, deviceId, correlationId, name);
        INSERT INTO StringTable VALUES(1000, '_Z4gemmPf');""")
    for i, (name, begin, end) in enumerate(spans, 1):
        db.execute("INSERT INTO StringTable VALUES(?, ?)", (i, name))
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_MARKER(timestamp, id, name) VALUES(?, ?, ?)", [(begin, i, i), (end, i, 0)])
    for i, (begin, end) in enumerate(kernels, 1):
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(?, 211, ?, ?, ?)", (i, begin - 2000, begin - 1000, i))
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES(?, ?, ?, 0, ?, 1000)", (i, begin, end, i))
    db.commit()
    return path


def write_nsys(path, ms):
    spans, kernels = stepped(ms)
    thread = 1 << 24 | 1
    db = sqlite3.connect(path)
    db.executescript("""
        CREATE TABLE StringIds(id, value);
        CREATE TABLE NVTX_EVENTS(start, end, eventType, text, globalTid);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, correlationId, globalPid, demangledName);
        INSERT INTO StringIds VALUES(1, 'gemm(float*)');""")
    db.executemany("INSERT INTO NVTX_EVENTS VALUES(?, ?, 59, ?, ?)", [(begin, end, name, thread) for name, begin, end in spans])
    for i, (begin, end) in enumerate(kernels, 1):
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(?, ?, ?, ?)", (begin - 2000, begin - 1000, thread, i))
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(?, ?, 0, ?, ?, 1)", (begin, end, i, 1 << 24))
    db.commit()
    return path


OF_TORCH = """
import json, sys, torch
net = torch.nn.Linear(8, 8)
with torch.profiler.profile(record_shapes=True) as p:
    for i in range(5):
        with torch.profiler.record_function("a step"):
            net(torch.ones(4, 8)).sum().backward()
p.export_chrome_trace(sys.argv[1])
json.dump({e.key: [e.count, e.cpu_time_total, e.self_cpu_time_total] for e in p.key_averages()}, open(sys.argv[2], "w"))
"""


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_file_of_torch_profilers_own_has_its_averages(name, torch_python, program, torchprof, tmp_path):
    """As it is written by the torch that runs this: before Kineto whole microseconds, no categories."""
    plain = tmp_path / "trace.json"
    subprocess.run([torch_python, program(OF_TORCH), plain, tmp_path / "averages"], check=True, capture_output=True)
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(plain.read_bytes()))
    done = torchprof("report", tmp_path / name, "-t", "ops", "--json", "-n", 1000)
    assert done.returncode == 0, done.stderr
    table, = json.loads(done.stdout)["tables"]
    ours = {row["name"]: [row["calls"], row["cpu_total_ns"] / 1e3, row["self_cpu_ns"] / 1e3] for row in table["rows"]}
    theirs = json.loads((tmp_path / "averages").read_text())
    assert {"a step", "aten::addmm", "AddmmBackward0"} <= set(ours) & set(theirs)
    keys = set(theirs) - {"[memory]"}
    events = json.loads(plain.read_text())
    events = [event for event in (events["traceEvents"] if isinstance(events, dict) else events) if event["ph"] == "X"]
    whole_microseconds = all(float(event["ts"]).is_integer() and float(event["dur"]).is_integer() for event in events)
    # Before Kineto a begin and a duration are whole microseconds, each cut off: up to two for each call and each call inside.
    rounding = 2 * sum(theirs[key][0] for key in keys)
    for key in keys - {"aten::sum"}:  # calls another overload of itself: newer torches count one of the two
        (calls, total, self_us), (their_calls, their_total, their_self) = ours[key], theirs[key]
        assert calls == their_calls, key
        assert abs(total - their_total) <= 2 * calls + 0.001 * total, (key, ours[key], theirs[key])
        if not whole_microseconds:
            assert abs(self_us - their_self) <= 2 * calls + 0.001 * total, (key, ours[key], theirs[key])
    # A call that sticks out of its caller by such a cut is counted by 1.13's averages as its caller's caller's: the sum is the same.
    assert abs(sum(row[2] for row in ours.values()) - sum(theirs[key][2] for key in keys)) <= rounding + 0.001 * ours["a step"][1]
    assert torchprof("diff", tmp_path / name, plain, "--fail-over", 0, "--metric", "total,ops,calls").returncode == 0


@pytest.fixture(scope="module")
def files(launcher, tmp_path_factory):
    """{kind: (file, one of the same kind in which matmul takes ten times as long)}; of a run there is but one."""
    directory = tmp_path_factory.mktemp("others")
    program = directory / "program.py"
    program.write_text(STEPPED)
    run = profile(launcher, directory / "run", [sys.executable, program], options=["-q", "--format", "kineto,perfetto", "--python", "off"])
    assert run.status == 0, run.stderr
    written = {kind: (write(directory / ("fast." + kind), 2), write(directory / ("slow." + kind), 20))
               for kind, write in (("nvprof", write_nvprof), ("nsys", write_nsys))}
    return {**written, "perfetto": (run.directory / "trace.perfetto-trace", None), "kineto": (run.trace_paths[0], None)}


@pytest.mark.once
@pytest.mark.parametrize("new", ["nvprof", "nsys"])
@pytest.mark.parametrize("base", ["perfetto", "kineto", "nvprof", "nsys"])
def test_diff_of_files_of_different_tools(base, new, files, torchprof):
    fast, slow = files[base][0], files[new][1]
    done = torchprof("diff", fast, slow, "--fail-over", 300, "--metric", "ops")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^  ops: matmul: self time per step .*, p <0\.001, limit 300 %$", done.stdout, re.M), done.stdout
    assert re.search(r"^.* slower .*  matmul$", done.stdout, re.M)
    kernels = re.search(r"^GPU kernels by .*\n.*\n(.*)$", done.stdout, re.M)
    assert kernels and kernels[1].endswith("gemm(float*)") and (" new " in kernels[1]) == (base in ("perfetto", "kineto")), done.stdout
    # With the files swapped it got faster. The limit is for aten::zeros, which torch 1.13 calls itself: it is new then, and takes microseconds.
    done = torchprof("diff", slow, fast, "--fail-over", 1, "--metric", "ops")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.once
def test_diff_of_perfetto_and_kineto_of_one_run_finds_nothing(files, torchprof):
    kineto, perfetto = files["kineto"][0], files["perfetto"][0]
    for base, new, without in ((kineto, perfetto, "NEW"), (perfetto, kineto, "BASE")):
        done = torchprof("diff", base, new, "--fail-over", 1, "--metric", "ops,calls,total,allocated,memory")
        assert done.returncode == 0 and not re.search(" gone|from 0", done.stdout), done.stdout
        said, = [line for line in done.stdout.splitlines() if "memory (" in line]
        assert said == "  %s says nothing of memory (recorded without, or a file that has none): it is not compared" % without


@pytest.mark.once
def test_what_files_of_other_tools_do_not_have_is_said_in_one_line_each(files, torchprof):
    done = torchprof("diff", files["nvprof"][0], files["nsys"][1], "--fail-over", 1, "--metric", "modules,memory,allocated")
    assert done.returncode == 0 and done.stdout.endswith("".join(
        "  nothing of the metric %s is in both runs to be judged\n" % metric for metric in ("modules", "memory", "allocated"))), done.stdout


def test_what_is_no_trace_is_one_line_and_an_error(run_torchprof, program, torch_python, torchprof, tmp_path):
    run = run_torchprof([torch_python, program(PROGRAM)], options=["--format", "memory-timeline,memory-timeline-raw"])
    assert run.status == 0, run.stderr
    (tmp_path / "list.json").write_text('[{"name": "x"}]')
    timelines = list(run.directory.glob("*.memory.*"))
    assert len(timelines) == 2
    for path in (*timelines, tmp_path / "list.json"):
        for command in (["report", path], ["diff", path, path], ["export", path, "--format", "table", "-o", tmp_path / "x"]):
            done = torchprof(*command)
            assert done.returncode == 125 and done.stdout == "" and done.stderr.count("\n") == 1 and " trace" in done.stderr, (command, done)
    assert not (tmp_path / "x").exists()
