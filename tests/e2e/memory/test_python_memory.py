"""--memory python: samples of what Python's own allocator gives out, by the line that asked for it."""
import json
import random
import re
import textwrap

import pytest

SAMPLE = 32 << 10  # tracer/heap/heap.h

# A program of random lines; each keeps objects, or makes objects that are freed at once. At its end it prints what tracemalloc says that each
# line keeps. The last block of all makes the peak.
BEGIN = """
import random, sys, threading, tracemalloc
kept = []
if "trace" in sys.argv:
    tracemalloc.start()
"""
END = """
if "trace" in sys.argv:
    for each in tracemalloc.take_snapshot().statistics("lineno"):
        frame = each.traceback[0]
        if frame.filename == __file__:
            print(frame.lineno, each.size)
last = bytearray(1 << 26)
"""
MAKES = ["[i] * {n}", "{{k: i for k in range({n})}}", "'x' * {n} + str(i)", "bytearray({n})", "list(range({n}))", "set(range({n}))", "tuple(map(str, range({n})))",
         "[*range(i % 600)]"]


def random_program(seed):
    random.seed(seed)
    lines = [BEGIN]
    for k in range(8):
        is_kept = k == 0 or random.random() < 0.4  # one of them at least, and large
        make = random.choice(MAKES).format(n=random.choice([1, 7, 60, 600, 6000, 60000]))
        size = max(1, eval("sum(map(sys.getsizeof, [%s] * 3))" % make, {"i": 1, "sys": __import__("sys")}) // 3)
        times = min(30000, random.choice([1 << 20, 1 << 23] if k else [1 << 23]) // size + 1)
        lines.append("def line%d():\n    for i in range(%d):\n        %s" % (k, times, ("kept.append(%s)" if is_kept else random.choice(["x = %s", "x = [%s]"])) % make))
        lines.append("line%d()" % k if random.random() < 0.7 else "t = threading.Thread(target=line%d); t.start(); t.join()" % k)
    return "\n".join([*lines, END])


def lines_of(torchprof, run):
    """{line of the program: its row}"""
    done = torchprof("report", run.directory, "-t", "memory", "--json", "--limit", "100000")
    assert run.status == 0 and done.returncode == 0, run.stderr + done.stderr
    found = {}
    for table in json.loads(done.stdout)["tables"]:
        for row in table["rows"]:
            place = re.match(r"program\.py\((\d+)\)", row.get("name") or "")
            if table["name"] == "memory_lines" and row["device"] == "Python allocator" and place:
                found.setdefault(int(place[1]), []).append(row)
    return found


def is_undamaged(torchprof, run):
    return "damaged" not in torchprof("report", run.directory).stdout


@pytest.mark.parametrize("seed", range(3))
def test_each_line_holds_what_tracemalloc_says_that_it_holds(python, run_torchprof, run_bare, program, torchprof, seed):
    path = program(random_program(seed))
    run = run_torchprof([python.path, path], options=["-w", "all", "--memory", "python"])
    assert run.stderr == "" or "damaged" not in run.stderr, run.stderr
    found = {line: sum(row["bytes"] for row in rows) for line, rows in lines_of(torchprof, run).items()}
    truth = dict(map(int, line.split()) for line in run_bare([python.path, path, "trace"]).stdout.decode().splitlines())
    compared = 0
    for line in truth.keys() | found.keys():
        expected = truth.get(line, 0)
        if line > len(path.read_text().splitlines()) - 8:
            continue  # END itself
        assert abs(found.get(line, 0) - expected) <= 6 * SAMPLE * (1 + (expected / SAMPLE) ** 0.5), (line, found.get(line), expected)
        compared += expected > 10 * SAMPLE
    assert compared > 0 and is_undamaged(torchprof, run)


def test_the_program_is_what_it_was(python, run_torchprof, run_bare, program):
    """tracemalloc, the count of blocks and what the collector sees; also where tracemalloc has put its hooks around ours."""
    path = program(textwrap.dedent("""
        import gc, sys, tracemalloc
        tracemalloc.start(3)
        kept = [[i] * 50 for i in range(1000)]  # a few of its blocks are ours, also without --memory python
        line = tracemalloc.get_object_traceback(kept[-1])
        print(line, [s.count // 100 for s in tracemalloc.take_snapshot().statistics("lineno") if s.traceback[0].lineno == 4])
        tracemalloc.stop()
        print(tracemalloc.is_tracing(), sys.getallocatedblocks() > 1000, len([o for o in gc.get_objects() if o in kept[:2]]))
        more = [[i] * 50 for i in range(1000)]
        del kept, more
        """))
    run, bare = run_torchprof([python.path, path], options=["--memory", "python"]), run_bare([python.path, path])
    assert (run.status, run.stdout) == (bare.returncode, bare.stdout.decode()), run.stderr


@pytest.mark.parametrize("allocator", ["malloc", "debug", "pymalloc_debug"])
def test_any_allocator_of_python_s_is_wrapped(python, run_torchprof, program, torchprof, allocator):
    path = program("kept = [[i] * 1000 for i in range(2000)]\nlast = bytearray(1 << 24)\n")
    run = run_torchprof([python.path, path], options=["-w", "all", "--memory", "python"], env={"PYTHONMALLOC": allocator})
    one, = [row for row in lines_of(torchprof, run)[1]]
    assert 0.7 < one["bytes"] / (2000 * 8000) < 1.4
    assert is_undamaged(torchprof, run)


def test_a_forked_child_has_what_it_allocates_itself(python, run_torchprof, program, torchprof):
    path = program(textwrap.dedent("""
        import os
        kept = [[i] * 1000 for i in range(3000)]
        if os.fork() == 0:
            del kept[:]                                            # the parent's, which the child did not allocate
            mine = [[i] * 1000 for i in range(1000)]
            os._exit(0)
        os.wait()
        """))
    run = run_torchprof([python.path, path], options=["-w", "all", "--memory", "python"])
    rows = lines_of(torchprof, run)
    by_pid = {(line, row["pid"]) for line, each in rows.items() for row in each if row["bytes"] > 1 << 20}
    assert len(by_pid) == 2 and {line for line, _ in by_pid} == {3, 6}, rows
    assert 0.7 < rows[6][0]["bytes"] / 8e6 < 1.4 and is_undamaged(torchprof, run)


LEAKS = """
import torch
history = []
net = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def remember(i):
    text = [str(k) * 9 for k in range(3000)]
    history.append({k: str(k) * 9 for k in range(1000)})
def train():
    for i in range(60):
        remember(i)
        optimizer.zero_grad()
        net(torch.randn(4, 8)).sum().backward()
        optimizer.step()
train()
"""


def test_what_python_keeps_of_each_step_is_found_with_its_line(torch_python, run_torchprof, program, torchprof):
    run = run_torchprof([torch_python, program(LEAKS)], options=["-w", "all", "--memory", "python"])
    done = torchprof("report", run.directory, "-t", "memory,advice", "--json")
    assert run.status == 0 and done.returncode == 0, run.stderr + done.stderr
    tables = {table["name"]: table["rows"] for table in json.loads(done.stdout)["tables"]}
    most = tables["memory_growth"][0]
    assert most["device"] == "Python allocator" and most["place"].startswith("program.py(8): ")
    assert 80_000 < most["step_bytes"] < 180_000
    leak, = [row for row in tables["advice"] if row["rule"] == "leak"]
    assert leak["where"].startswith("program.py(8)") and "Python objects" in leak["finding"]


def test_a_program_that_keeps_nothing_is_not_accused(torch_python, run_torchprof, program, torchprof):
    run = run_torchprof([torch_python, program(LEAKS.replace("history.append(", "history[:] = (0,); print("))], options=["-w", "all", "--memory", "python"])
    done = torchprof("report", run.directory, "-t", "memory,advice", "--json")
    tables = {table["name"]: table["rows"] for table in json.loads(done.stdout)["tables"]}
    assert not tables["memory_growth"] and not [row for row in tables["advice"] if row["rule"] == "leak"]


def test_formats_of_torch_s_own_have_torch_s_memory_alone(torch_python, run_torchprof, check_trace, program):
    run = run_torchprof([torch_python, program(LEAKS)], options=["-w", "all", "--memory", "python", "--format", "kineto"])
    devices = {e["args"]["Device Type"] for e in check_trace(run.trace()).events if e["name"] == "[memory]"}
    assert devices == {0}


def test_where_it_cannot_be_it_is_said(torch_python, run_torchprof, program, torchprof):
    run = run_torchprof([torch_python, program("import torch; torch.ones(3)")], options=["--memory", "python", "--python", "off"])
    assert "python memory" in torchprof("report", run.directory).stdout
