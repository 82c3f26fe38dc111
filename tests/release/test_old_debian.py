"""The release in a Debian 11 (tests/roots/roots.py bullseye): glibc 2.31, no torch, Python 3.9 in /usr/bin and a later one in /usr/local/bin."""
import platform
import subprocess
import sys

import pytest

from conftest import ROOT

OLD_PYTHON = "/usr/bin/python3"
PROGRAM = """
import json, threading
def work(n):
    return [json.dumps({"number": i}) for i in range(n)]
thread = threading.Thread(target=work, args=(100,))
thread.start()
work(200)
thread.join()
print("done")
"""


@pytest.fixture
def unit_programs(prefix):
    """Those that packaging/build -Dtests=true has made; roots.py puts them beside the tree."""
    return next(parent for parent in prefix.parents if parent.name == "installed").with_name("unit")


def test_this_is_an_old_libc():
    assert platform.libc_ver() == ("glibc", "2.31")


def test_a_python_program_has_its_calls(run_torchprof, check_trace, program):
    run = run_torchprof([sys.executable, program(PROGRAM)])
    assert (run.status, run.stdout) == (0, "done\n"), run.stderr
    trace = check_trace(run.trace())
    assert trace.names("python_function")["program.py(3): work"] == 2
    for kind in ("perfetto", "sqlite", "speedscope"):
        run.export(kind, run.directory.with_name("as-" + kind))


def test_of_an_older_python_one_line_says_that_it_is_not_known(run_torchprof, program):
    run = run_torchprof([OLD_PYTHON, program(PROGRAM)])
    assert (run.status, run.stdout) == (0, "done\n")
    said = [line for line in run.stderr.splitlines() if "Python 3.9" in line]
    assert said == ["torchprof: Python calls are not recorded: Python 3.9.2 is not one that this version knows (3.10 to 3.15)"], run.stderr


def test_a_c_program_has_its_ranges(run_torchprof, check_trace, tmp_path):
    source, binary = tmp_path / "ranges.c", tmp_path / "ranges"
    source.write_text('#include "client.h"\nint main(void) { nvtxRangePushA("outer"); nvtxRangePop(); return 3; }\n')
    subprocess.run(["gcc", "-DOWN_CLIENT", "-I", ROOT / "tests" / "nvtx", "-o", binary, source, "-pthread", "-ldl"], check=True)
    run = run_torchprof([binary])
    assert run.status == 3, run.stderr
    assert any(event["name"] == "outer" for event in check_trace(run.trace()).events)


def test_programs_that_are_not_recorded_are_as_without_us(run_torchprof, run_bare):
    command = ["sh", "-c", "ls / | sort -r | head -3; exit 5"]
    run, bare = run_torchprof(command), run_bare(command)
    assert (run.status, run.stdout_bytes) == (bare.returncode, bare.stdout) == (5, bare.stdout)


@pytest.mark.parametrize("path, status, said", [(sys.executable, 0, "A capture would work."), (OLD_PYTHON, 1, "A capture would not work.")])
def test_the_doctor_says_what_would_be_recorded(torchprof, path, status, said):
    done = torchprof("doctor", "--", path, "-c", "pass")
    assert said in done.stdout and done.returncode == status, done.stdout + done.stderr


def test_a_mistake_is_one_line(torchprof):
    done = torchprof("report", "nowhere")
    assert done.returncode != 0 and done.stderr == "torchprof: nowhere: No such file or directory\n"


@pytest.mark.parametrize("program, name", [("old_libc", "old_libc"), ("tracer", "wakeup"), ("tracer", "recorder"), ("tracer", "seccomp_filter"),
                                           ("launcher", "exec_environment")])
def test_unit_tests_of_what_depends_on_libc(unit_programs, program, name):
    done = subprocess.run([unit_programs / (program + "_test"), "--source-file=*/%s_test.cpp" % name], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
