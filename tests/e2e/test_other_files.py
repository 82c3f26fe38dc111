"""`torchprof report` of files that are not a run: ours in another form, and those of nvprof and nsys."""
import re
import sqlite3

import pytest

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
    run = run_torchprof([torch_python, program(PROGRAM)], options=["--format", "kineto,perfetto", "--memory", "off"])
    assert run.status == 0, run.stderr
    (run.directory / "merged.perfetto-trace").rename(tmp_path / "no name says it")
    for table in ("ops", "modules", "python", "steps"):
        of_perfetto, of_json = (report(path, "--tables", table, "--sort", "total", "--top", "40") if table != "steps" else report(path, "--tables", table)
                                for path in (tmp_path / "no name says it", run.directory))
        body = [re.sub(r"^.* in .*$", "", text, count=1, flags=re.M) for text in (of_perfetto, of_json)]
        assert body[0] == body[1] and len(body[0].splitlines()) > 3
    # Where a run has left nothing else.
    for path in run.trace_paths:
        path.unlink()
    (tmp_path / "no name says it").rename(run.directory / "merged.perfetto-trace")
    assert "aten::addmm" in report(run.directory)


def test_only_tables_are_made_of_a_file_that_is_not_json(torchprof, tmp_path):
    db = sqlite3.connect(tmp_path / "x.json")
    db.execute("CREATE TABLE NVTX_EVENTS(start, end, eventType, text, globalTid)")
    db.execute("INSERT INTO NVTX_EVENTS VALUES(1000, 3000, 59, 'unmistakable', 1)")
    db.commit()
    done = torchprof("export", tmp_path / "x.json", "--format", "kineto,table", "-o", tmp_path / "out")
    assert done.returncode == 125 and "of a file like this only the tables can be written" in done.stderr
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
    text = report(tmp_path / "profile.nvprof")
    assert re.search(r"4\.000 ms .*mm$", text, re.M) and re.search(r"1\.000 ms .*unmistakable\(float\*\)$", text, re.M)
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MARKER(timestamp, id, name) VALUES(1000000, 7, 1)")
    db.commit()
    done = torchprof("report", tmp_path / "profile.nvprof")
    assert (done.returncode, done.stderr) == (125, "torchprof: cannot read the trace %s: the marker 7 is there twice\n" % (tmp_path / "profile.nvprof"))
