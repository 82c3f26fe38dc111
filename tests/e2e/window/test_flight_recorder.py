"""--keep last: whatever happens, the last part of the run is there, of every thread, with stacks that balance."""
import json
import subprocess
import sys

import pytest

from conftest import clean_environment

pytestmark = pytest.mark.once

PYTHON = sys.executable
TEXT = """
import os, sys, threading
def leaf(n): return n if n < 2 else leaf(n - 1) + leaf(n - 2)
def round_number(i): leaf(12)
def worker():
    for i in range(300): round_number(i)
def last_of_all(): pass
def main():
    threads = [threading.Thread(target=worker) for _ in range(3)]
    for t in threads: t.start()
    worker()
    for t in threads: t.join()
    last_of_all()
    if sys.argv[1:] == ["kill"]: os.kill(os.getpid(), 9)
    if sys.argv[1:] == ["abort"]: os.abort()
main()
"""


@pytest.mark.parametrize("end", ["exit", "kill", "abort"])
def test_the_last_part_of_every_thread_is_kept(run_torchprof, program, check_trace, end):
    run = run_torchprof([PYTHON, program(TEXT), end], options=["--keep", "last", "--max-size", "2M"])
    assert run.status == {"exit": 0, "kill": -9, "abort": -6}[end], run.stderr
    trace = check_trace(run.trace())
    spools = list((run.directory / "spool").glob("*.spool"))
    assert sum(s.stat().st_size for s in spools) <= (2 << 20) + 5 * (64 << 10)
    slices = [e for e in trace.events if e.get("cat") == "python_function"]
    by_name = lambda part: [e for e in slices if e["name"].endswith(part)]
    # What began long ago is there with its true beginning, what ended long ago is not.
    assert len(by_name(": last_of_all")) == 1 and len(by_name(": main")) == 1
    assert by_name(": main")[0]["ts"] <= min(e["ts"] for e in by_name(": round_number"))
    assert 0 < len(by_name(": round_number")) < 1200
    assert all(e["ts"] + e["dur"] <= by_name(": last_of_all")[0]["ts"] for e in by_name(": round_number"))
    info = json.loads((run.directory / "run.json").read_text())
    assert info["processes"][0]["recycled_bytes"] > 0 and info["processes"][0]["lost"] == {}
    assert "older events were dropped (--keep last)" in run.stderr


HANGS = """
import sys, time
def leaf(): pass
def hangs():
    print("hangs", flush=True)
    sys.stdin.read()
def outer():
    for _ in range(300000): leaf()
    hangs()
outer()
"""


def test_where_shows_what_hangs_long_after_its_begin_was_let_go(launcher, torchprof, program, tmp_path):
    command = [launcher, "run", "-q", "-o", tmp_path / "run", "--keep", "last", "--max-size", "1M", "--format", "none", "--", PYTHON, program(HANGS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()) as run:
        assert run.stdout.readline() == "hangs\n"
        shown = torchprof("where", tmp_path / "run").stdout
        run.communicate()
    frames = [line.split("): ")[1].split(",")[0] for line in shown.splitlines() if "program.py(" in line]
    assert run.returncode == 0 and frames[-3:] == ["<module>", "outer", "hangs"], shown


def test_nothing_is_let_go_below_the_limit(run_torchprof, program):
    run = run_torchprof([PYTHON, program("def f(): pass\nfor i in range(1000): f()")], options=["--keep", "last"])
    assert "older events were dropped" not in run.stderr
    assert [n for name, n in run.trace().names("python_function").items() if name.endswith("program.py(1): f")] == [1000]
