#!/usr/bin/env python3
"""libtorch's own C++ tests with and without torchprof: no test may fail with us that passes without.

    tests/foreign/libtorch.py [--launcher PATH] [--timeout SECONDS] [--short] [--keep DIR] [PROGRAM...]

Debian: libtorch-test. Without PROGRAM: all of them but the benchmark, some 4 minutes on two cores. The last line is "N passed, N failed",
counted in tests that pass without us; the status is 1 if one failed.
"""
import argparse
import pathlib
import sys

import both_ways

DIRECTORY = pathlib.Path("/usr/lib/libtorch-test")
BENCHMARKS = {"c10_intrusive_ptr_benchmark"}
SHORT = "basic c10_intrusive_ptr_test c10_ThreadLocal_test op_registration_test cpu_profiling_allocator_test".split()


def main():
    parser = argparse.ArgumentParser()
    both_ways.add_options(parser, timeout=300)
    parser.add_argument("program", nargs="*")
    options = parser.parse_args()
    programs = options.program or (SHORT if options.short else sorted({path.name for path in DIRECTORY.iterdir()} - BENCHMARKS))

    def command(program, report):
        return [DIRECTORY / program, "--gtest_output=xml:%s" % report]
    return both_ways.run_all(options, programs, command)


if __name__ == "__main__":
    sys.exit(main())
