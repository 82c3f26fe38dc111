#!/usr/bin/env python3
"""CPython's own test suite with and without torchprof: no test may fail with us that passes without.

    tests/foreign/cpython.py [--launcher PATH] [--python PYTHON] [--timeout SECONDS] [--short|--rest] [--keep DIR] [MODULE...]

Debian: libpython3.11-testsuite, for /usr/bin/python3; any other Python whose `test` package is installed will do. Without MODULE: all of
MODULES, where we and the program can get into each other's way; it takes some 30 minutes on two cores. --rest: all others of the suite,
another half an hour. The last line is "N passed, N failed", counted in tests that pass without us; the
status is 1 if one failed.
"""
import argparse
import subprocess
import sys

import both_ways

MODULES = """test_sys test_sys_setprofile test_sys_settrace test_threading test_thread test_subprocess test_multiprocessing_fork
    test_multiprocessing_spawn test_multiprocessing_forkserver test_os test_posix test_signal test_asyncio test_generators test_coroutines
    test_exceptions test_gc test_weakref test_atexit test_faulthandler test_embed test_contextlib test_site test_cmd_line test_runpy test_venv
    test_threading_local test_threadsignals test_fork1 test_wait3 test_popen test_concurrent_futures test_profile test_cprofile test_trace
    test_bdb test_pdb test_code test_frame test_traceback test_finalization test_interpreters test__xxsubinterpreters test_weakset
    test_import test_importlib test_resource test_mmap test_fcntl test_sysconfig test_inspect test_context test_queue test_tracemalloc""".split()
SHORT = "test_sys_setprofile test_sys_settrace test_sys test_thread test_atexit test_generators test_coroutines test_posix test_code".split()

# What cannot be otherwise: patterns of tests, and why.
INHERENT = {
    "test.test_frame.TestIncompleteFrameAreInvisible.test_sneaky_frame_object":
        "counts on the next allocation being the frame object of a generator; it fails with any profile function, sys.setprofile's as well",
    "test.test_dis.*_specialize": "dis(adaptive=True) shows the instructions of monitoring; README, Limits",
    "test.test_dis.*.test_loop_quicken": "the same",
    "test.test_dis.*.test_super_instructions": "the same",
}

# Left out, as they do not always end without us either. The first ends when a signal comes in the middle of a recursion, which on a
# busy machine it now and then does not; the others wait for a connection over VSOCK, which some virtual machines never make.
ENDLESS = ["test_print_exception_gh_102056", "test.test_socket.ThreadedVSOCKSocketStreamTest.*"]


def rest_of_suite(python):
    listed = subprocess.run([python, "-m", "test", "--list-tests"], check=True, capture_output=True, text=True).stdout.split()
    return [name for name in listed if name.removeprefix("test.").split(".")[0] not in MODULES]


def main():
    parser = argparse.ArgumentParser()
    both_ways.add_options(parser, timeout=900)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--rest", action="store_true", help="what is not in MODULES")
    parser.add_argument("module", nargs="*")
    options = parser.parse_args()
    modules = options.module or (SHORT if options.short else rest_of_suite(options.python) if options.rest else MODULES)

    def command(module, report):
        ignored = [word for pattern in ENDLESS for word in ("--ignore", pattern)]
        return [options.python, "-m", "test", "-v", "--timeout", str(options.timeout), *ignored, "--junit-xml", report, module]
    return both_ways.run_all(options, modules, command, INHERENT)


if __name__ == "__main__":
    sys.exit(main())
