#!/usr/bin/env python3
"""CPython's own test suite with and without torchprof: no test may fail with us that passes without.

    tests/foreign/cpython.py [--launcher PATH] [--python PYTHON] [--timeout SECONDS] [--jobs N] [--short] [MODULE...]

Debian: libpython3.11-testsuite, for /usr/bin/python3; any other Python whose `test` package is installed will do. Each module runs
once bare and once under `torchprof run` with its default options (but --format none: what is written afterwards is not the program's
business), and the results are compared test by test. Without MODULE: all of MODULES, which takes some 30 minutes on two cores. The last
line is "N passed, N failed", counted in tests that pass without us; the status is 1 if one failed.
"""
import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = """test_sys test_sys_setprofile test_sys_settrace test_threading test_thread test_subprocess test_multiprocessing_fork
    test_multiprocessing_spawn test_multiprocessing_forkserver test_os test_posix test_signal test_asyncio test_generators test_coroutines
    test_exceptions test_gc test_weakref test_atexit test_faulthandler test_embed test_contextlib test_site test_cmd_line test_runpy test_venv
    test_threading_local test_threadsignals test_fork1 test_wait3 test_popen test_concurrent_futures test_profile test_cprofile test_trace
    test_bdb test_pdb test_code test_frame test_traceback test_finalization test_interpreters test__xxsubinterpreters test_weakset
    test_import test_importlib test_resource test_mmap test_fcntl test_sysconfig test_inspect test_context test_queue test_tracemalloc""".split()
SHORT = "test_sys_setprofile test_sys_settrace test_sys test_thread test_atexit test_generators test_coroutines test_posix".split()

# What cannot be otherwise: patterns of tests, and why.
INHERENT = {
    "test.test_frame.TestIncompleteFrameAreInvisible.test_sneaky_frame_object":
        "counts on the next allocation being the frame object of a generator; it fails with any profile function, sys.setprofile's as well",
    "test.test_subprocess.*.test_pass_fds_redirected":
        "lists all descriptors of a child, which is traced: the recorder's file is open in it, at 1000 or thereabouts",
}


def results_in(path):
    """{test: whether it passed}, without the skipped ones; None if the suite did not get to its end."""
    if not path.exists():
        return None
    found = {}
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        if case.find("skipped") is None and case.get("result") != "skipped":
            found[case.get("name")] = case.find("error") is None and case.find("failure") is None
    return found


def run_module(python, launcher, module, timeout, directory):
    """The results of one module, and what it printed."""
    way = "torchprof" if launcher else "bare"
    directory = directory / module / way
    directory.mkdir(parents=True)
    report = directory / "junit.xml"
    command = [python, "-m", "test", "-v", "--timeout", str(timeout), "--junit-xml", report, module]
    if launcher:
        command = [launcher, "run", "-q", "--format", "none", "-o", directory / "run", "--", *command]
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCHPROF_")}
    with open(directory / "output", "wb") as output:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=directory, start_new_session=True)
        try:
            program.wait(timeout + 30)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
    subprocess.run(["rm", "-rf", directory / "run"], check=True)
    return results_in(report), directory / "output"


def is_inherent(test):
    return any(fnmatch.fnmatchcase(test, pattern) for pattern in INHERENT)


def compare(module, bare, ours, output):
    """(how many passed, [what failed]); says it as well."""
    if not bare or not any(bare.values()):
        print("%-36s does not run here without us either" % module, flush=True)
        return 0, []
    passing = {test for test, passed in bare.items() if passed}
    if ours is None:
        failed = [module + " did not end"]
    else:
        failed = sorted(test for test in passing if not ours.get(test, False))
    inherent = [test for test in failed if is_inherent(test)]
    print("%-36s %4d pass without us, %d of them fail with us, of these %d by design" % (module, len(passing), len(failed), len(inherent)), flush=True)
    failed = [test for test in failed if test not in inherent]
    for test in failed:
        print("    FAILED %s (%s)" % (test, output), flush=True)
    return len(passing) - len(failed) - len(inherent), failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", type=pathlib.Path, default=ROOT / "build" / "launcher" / "torchprof")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--timeout", type=int, default=900, help="seconds a module")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="only what takes less than a minute")
    parser.add_argument("--keep", type=pathlib.Path, help="a new directory for what the tests printed")
    parser.add_argument("module", nargs="*")
    options = parser.parse_args()
    modules = options.module or (SHORT if options.short else MODULES)
    launcher = options.launcher.resolve()
    directory = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="torchprof-cpython-"))
    passed, failed = 0, []

    def both(module):
        bare, _ = run_module(options.python, None, module, options.timeout, directory)
        return module, bare, *run_module(options.python, launcher, module, options.timeout, directory)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(both, modules):
            good, bad = compare(*result)
            passed += good
            failed += bad
    if not failed and not options.keep:
        subprocess.run(["rm", "-rf", directory], check=True)
    print("%d passed, %d failed" % (passed, len(failed)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
