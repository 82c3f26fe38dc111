"""usage: totals.py LOG...: adds up meson's testlog.json files (the cases of doctest within them) and pytest's JUnit files.

Prints one line a log, one for each test of pytest that was skipped, with the reason, and at the end "N passed, N failed". The exit status is 0 only if something was tested and nothing failed.
Beside NAME.xml, NAME-timed.xml counts as well if tests/two_passes left one. A log that is missing, a program that printed no summary and a log without tests each count as a failure.
"""
import json
import os
import re
import sys
import xml.etree.ElementTree

SUMMARY = re.compile(r"test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed")


def of_meson(path):
    passed = failed = 0
    with open(path) as log:
        for line in log:
            test = json.loads(line)
            cases = SUMMARY.search(re.sub(r"\x1b\[[0-9;]*m", "", test.get("stdout", "")))
            passed, failed = passed + int(cases[1] if cases else test["result"] == "OK"), failed + int(cases[2] if cases else 0)
            if test["result"] not in ("OK", "SKIP") and not (cases and int(cases[2])):
                failed += 1  # died, or ended with a status that its cases do not explain
    return passed, failed


def of_pytest(path):
    suites = list(xml.etree.ElementTree.parse(path).getroot().iter("testsuite"))
    tests, failed, skipped = (sum(sum(int(s.get(key, 0)) for key in keys) for s in suites)
                              for keys in (["tests"], ["failures", "errors"], ["skipped"]))
    for case in (case for suite in suites for case in suite.iter("testcase")):
        for skip in case.iter("skipped"):
            print("%s: NOT TESTED: %s: %s" % (path, case.get("name"), skip.get("message")))
    return tests - failed - skipped, failed


def with_timed(paths):
    for path in paths:
        yield path
        timed = re.sub(r"\.xml$", "-timed.xml", path)
        if timed != path and os.path.exists(timed):
            yield timed


def main():
    total_passed = total_failed = 0
    for path in with_timed(sys.argv[1:]):
        if not os.path.exists(path):
            print("%s: is missing" % path)
            total_failed += 1
            continue
        passed, failed = of_pytest(path) if path.endswith(".xml") else of_meson(path)
        if passed + failed == 0:
            failed = 1
        print("%s: %d passed, %d failed" % (path, passed, failed))
        total_passed, total_failed = total_passed + passed, total_failed + failed
    print("%d passed, %d failed" % (total_passed, total_failed))
    return 1 if total_failed or not total_passed else 0


if __name__ == "__main__":
    sys.exit(main())
