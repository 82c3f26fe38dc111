"""What pytest collects. Its workers collect each for itself and must find the same: one second more on the clock, or another order in a set, and none
of the tests would run."""
import os
import subprocess
import sys
import time

from conftest import ROOT


def collected(seed):
    done = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "--run-slow", "tests/house", "tests/e2e"], cwd=ROOT, text=True,
                          capture_output=True, env={**os.environ, "PYTHONHASHSEED": str(seed)})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_the_same_tests_are_found_later_and_with_other_hashes():
    first = collected(1)
    time.sleep(1)  # gzip and the like write down the second
    assert len(first) > 1000 and first == collected(2)
