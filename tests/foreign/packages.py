#!/usr/bin/env python3
"""The own tests of gevent and coverage.py with and without torchprof: no test may fail with us that passes without.

    tests/foreign/packages.py gevent|coverage SOURCES [--launcher PATH] [--python PYTHON] [--timeout SECONDS] [--short] [--keep DIR] [FILE...]

SOURCES is a checkout of the package at the version that PYTHON has installed (Debian 12: gevent 22.10.2, coverage.py 6.5.0): Debian's
packages leave the tests out. FILE: the names of test files; without, all of them. gevent's files are programs that are judged by their
exit status, coverage.py's are run by pytest (Debian: python3-flaky, python3-hypothesis). The last line is "N passed, N failed".
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

import both_ways

SHORT = {"gevent": "test__core test__queue test__threading test__greenlet test__subprocess test__signal test__os test__threadpool".split(),
         "coverage": "test_oddball test_concurrency test_context".split()}

# What cannot be otherwise: patterns of tests, and why.
INHERENT = {
    "tests.test_testing.test_xdist_sys_path_nuttiness_is_fixed":
        "wants that PYTHONPATH is not set: our folder is on it, the way in for a child that lost LD_PRELOAD",
}


def gevent_with_tests(python, sources, scratch):
    """A copy of the installed package that has its tests: a directory for PYTHONPATH."""
    installed = subprocess.run([python, "-c", "import gevent; print(gevent.__path__[0])"], check=True, capture_output=True, text=True).stdout.strip()
    shutil.copytree(installed, scratch / "gevent")
    for part in "tests", "testing":
        shutil.copytree(sources / "src" / "gevent" / part, scratch / "gevent" / part, dirs_exist_ok=True)
    return scratch


def main():
    parser = argparse.ArgumentParser()
    both_ways.add_options(parser, timeout=300)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("package", choices=SHORT)
    parser.add_argument("sources", type=pathlib.Path)
    parser.add_argument("file", nargs="*")
    options = parser.parse_args()
    sources = options.sources.resolve()
    directory = sources / ("src/gevent/tests" if options.package == "gevent" else "tests")
    files = options.file or (SHORT[options.package] if options.short else sorted(path.stem for path in directory.glob("test_*.py")))
    with tempfile.TemporaryDirectory(prefix="torchprof-foreign-") as scratch:
        if options.package == "gevent":
            path = gevent_with_tests(options.python, sources, pathlib.Path(scratch))

            def command(name, report):
                return ["env", "PYTHONPATH=%s" % path, options.python, "-m", "gevent.tests." + name]
        else:
            # Without the sources of the package itself: what is installed is tested, with its part in C.
            path = pathlib.Path(scratch) / "sources"
            shutil.copytree(sources, path, ignore=lambda at, names: {"coverage"} & set(names) if pathlib.Path(at) == sources else set())

            def command(name, report):
                return ["env", "-C", path, options.python, "-m", "pytest", "-q", "-n", "0", "-p", "no:warnings", "-p", "no:cacheprovider",
                        "-o", "addopts=", "--junitxml", report, "tests/%s.py" % name]
        return both_ways.run_all(options, files, command, INHERENT)


if __name__ == "__main__":
    sys.exit(main())
