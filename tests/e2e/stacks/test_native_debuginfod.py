"""Functions, files and lines that only a debuginfod server has: of a program whose debug information was taken away."""
import collections
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest

from conftest import PATIENCE, clean_environment, free_port, profile

pytestmark = [pytest.mark.once, pytest.mark.skipif(not os.path.exists("/usr/include/ATen/ops/ones.h"), reason="torch's headers are not installed (libtorch-dev)")]

# outer() is a dynamic symbol, main() and at::ones(), which is inline in a header, are not.
PROGRAM = """#include <ATen/ops/ones.h>

__attribute__((always_inline)) static inline void inner() { at::ones({2}); }
__attribute__((noinline, visibility("default"))) void outer() { inner(); asm volatile(""); }
int main() { outer(); return 0; }
"""
# By a server; by the program alone.
WITH_LINES = ["inner (stripped.cpp:3)", "outer() (stripped.cpp:4)", "main (stripped.cpp:5)"]
WITHOUT = [r"stripped\+0x[0-9a-f]+", r"outer\(\)", r"stripped\+0x[0-9a-f]+"]

Served = collections.namedtuple("Served", "url program")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server of the debug information, and the program without it."""
    server = shutil.which("debuginfod", path=os.environ["PATH"] + ":/usr/sbin")
    assert server, "debuginfod is missing: apt-get install debuginfod"
    directory = tmp_path_factory.mktemp("debuginfod")
    program, kept = directory / "stripped", directory / "served" / "stripped.debug"
    kept.parent.mkdir()
    (directory / "stripped.cpp").write_text(PROGRAM)
    subprocess.run(["c++", "-std=c++20", "-O1", "-g", "-Wl,--export-dynamic-symbol=_Z5outerv", "-Wl,--build-id", "-o", program, "stripped.cpp", "-ltorch_cpu", "-lc10"], cwd=directory, check=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, kept], check=True)
    subprocess.run(["strip", program], check=True)
    build_id = re.search(r"Build ID: (\w+)", subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout)[1]
    url = "http://127.0.0.1:%d" % free_port()
    with open(directory / "log", "w") as log:
        running = subprocess.Popen([server, "-p", url.rpartition(":")[2], "-d", ":memory:", "-F", kept.parent], stdout=log, stderr=log,
                                   env=clean_environment({"DEBUGINFOD_URLS": None}))
    try:
        wait_for("%s/buildid/%s/debuginfo" % (url, build_id), directory / "log")
        yield Served(url, program)
    finally:
        running.terminate()
        running.wait(PATIENCE)


def wait_for(url, log):
    for _ in range(200):
        try:
            with urllib.request.urlopen(url):
                return
        except OSError:
            time.sleep(0.05)
    pytest.fail("the server does not give %s:\n%s" % (url, log.read_text()))


def environment(directory, url=None):
    return {"DEBUGINFOD_URLS": url, "DEBUGINFOD_CACHE_PATH": directory / "cache", "DEBUGINFOD_TIMEOUT": "5"}


def frames(trace):
    """Of the program."""
    stack, = (e["args"]["stack"] for e in trace.spans("cpu_op") if e["name"] == "aten::ones")
    return [frame for frame in stack if re.match(r"inner|outer|main|stripped\+", frame)]


def are(expected, found):
    return len(found) >= len(expected) and all(re.fullmatch(e, f) for e, f in zip(expected, found))


@pytest.fixture
def record(launcher, served, tmp_path):
    def run(url=None, program=served.program):
        done = profile(launcher, tmp_path / "run", [program], ["--native", "on"], env=environment(tmp_path, url))
        assert done.status == 0, done.stderr
        return done
    return run


@pytest.fixture
def exported(launcher, tmp_path, check_trace):
    """The program's frames in an export of a run; the command may stand in another."""
    def export(run, url=None, around=()):
        done = subprocess.run([*around, launcher, "export", run.directory, "--format", "kineto", "-o", tmp_path / "again.json"],
                              capture_output=True, text=True, env=clean_environment(environment(tmp_path, url)), timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return frames(check_trace(tmp_path / "again.json", merged=True))
    return export


def test_a_server_gives_functions_inlined_ones_files_and_lines(record, served, check_trace, tmp_path):
    assert frames(check_trace(record(served.url).trace())) == WITH_LINES
    assert any((tmp_path / "cache").iterdir())


def test_without_the_variable_there_is_what_the_program_has_and_no_network(record, exported, check_trace, tmp_path):
    run = record()
    assert are(WITHOUT, frames(check_trace(run.trace()))), frames(run.trace())
    assert are(WITHOUT, exported(run, around=["strace", "-f", "-e", "trace=socket", "-o", tmp_path / "calls"]))
    assert "AF_INET" not in (tmp_path / "calls").read_text() and not (tmp_path / "cache").exists()


def test_what_a_server_knows_better_is_taken_later_and_kept(record, served, exported):
    run = record()
    assert exported(run, served.url) == WITH_LINES
    assert exported(run) == WITH_LINES


def test_a_run_that_went_to_another_machine_has_all_names(record, served, exported, tmp_path):
    """The program is gone, and there is no server."""
    program = shutil.copy(served.program, tmp_path)
    run = record(served.url, program)
    os.unlink(program)
    run.directory = run.directory.rename(tmp_path / "elsewhere")
    assert exported(run) == WITH_LINES
    (run.directory / "spool" / "symbols").unlink()
    assert all("+0x" in frame for frame in exported(run))


def test_a_server_that_is_not_there_changes_nothing(record, check_trace):
    run = record("http://127.0.0.1:9")
    assert are(WITHOUT, frames(check_trace(run.trace()))), frames(run.trace())


@pytest.mark.timed
def test_a_server_that_does_not_answer_is_waited_for_once(launcher, served, tmp_path):
    """The program has a dozen objects and more."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        env = environment(tmp_path, "http://127.0.0.1:%d" % silent.getsockname()[1]) | {"DEBUGINFOD_TIMEOUT": "1"}
        began = time.monotonic()
        run = profile(launcher, tmp_path / "run", [served.program], ["--native", "on"], env=env)
        assert run.status == 0 and time.monotonic() - began < 10, time.monotonic() - began
    assert are(WITHOUT, frames(run.trace()))
