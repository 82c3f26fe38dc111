"""usage: totals.py [--slowest N] [--chosen] LOG...: adds up meson's testlog.json files (the cases of doctest within them) and pytest's JUnit files.

Prints one line a log, one for each test of pytest that was skipped, with the reason, and at the end "N passed, N failed". The exit status is 0 only if something was tested and nothing failed.
Beside NAME.xml, NAME-timed.xml counts as well if tests/two_passes left one. A log that is missing, a program that printed no summary and a log without tests each count as a failure.

--slowest N   before the last line, the N tests that took longest, as tests/run takes them
--chosen      tests were chosen by their names: a log may be without any if another has some
"""
import argparse
import heapq
import json
import os
import re
import sys
import xml.etree.ElementTree

SUMMARY = re.compile(r"test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed")


def of_meson(path, times):
    passed = failed = 0
    with open(path) as log:
        for line in log:
            test = json.loads(line)
            times.append((test.get("duration", 0), "unit test %s" % test.get("name", "").rpartition(" / ")[2]))  # of "PROJECT:SUITES / NAME"
            cases = SUMMARY.search(re.sub(r"\x1b\[[0-9;]*m", "", test.get("stdout", "")))
            passed, failed = passed + int(cases[1] if cases else test["result"] == "OK"), failed + int(cases[2] if cases else 0)
            if test["result"] not in ("OK", "SKIP") and not (cases and int(cases[2])):
                failed += 1  # died, or ended with a status that its cases do not explain
    return passed, failed


def of_pytest(path, times):
    suites = list(xml.etree.ElementTree.parse(path).getroot().iter("testsuite"))
    tests, failed, skipped = (sum(sum(int(s.get(key, 0)) for key in keys) for s in suites)
                              for keys in (["tests"], ["failures", "errors"], ["skipped"]))
    for case in (case for suite in suites for case in suite.iter("testcase")):
        # classname: the file, from the folder where tests/pytest.ini lies, with dots for slashes
        times.append((float(case.get("time", 0)), "tests/%s.py::%s" % (case.get("classname", "").replace(".", "/"), case.get("name"))))
        for skip in case.iter("skipped"):
            print("%s: NOT TESTED: %s: %s" % (path, case.get("name"), skip.get("message")))
    return tests - failed - skipped, failed


def with_timed(path):
    """The log, and the one beside it of what measured time."""
    timed = re.sub(r"\.xml$", "-timed.xml", path)
    return [path] + [timed] * (timed != path and os.path.exists(timed))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--slowest", type=int, default=0)
    parser.add_argument("--chosen", action="store_true")
    parser.add_argument("logs", nargs="*")
    options = parser.parse_args()
    total_passed = total_failed = 0
    times = []
    for log in options.logs:
        sums = []
        for path in with_timed(log):
            if not os.path.exists(path):
                print("%s: is missing" % path)
                sums.append((0, 1))
                continue
            sums.append((of_pytest if path.endswith(".xml") else of_meson)(path, times))
            print("%s: %d passed, %d failed" % (path, *sums[-1]))
        passed, failed = map(sum, zip(*sums))
        if passed + failed == 0 and not options.chosen:
            print("%s: nothing was tested" % log)
            failed = 1
        total_passed, total_failed = total_passed + passed, total_failed + failed
    if total_passed + total_failed == 0:
        print("nothing was tested")
        total_failed = 1
    for number, (seconds, name) in enumerate(heapq.nlargest(options.slowest, times)):
        print("%s%8.1f s  %s" % ("" if number else "the slowest:\n", seconds, name))
    print("%d passed, %d failed" % (total_passed, total_failed))
    return 1 if total_failed else 0


if __name__ == "__main__":
    sys.exit(main())
