"""Other people's test programs: what passes without us passes with us. The whole of each is a script in tests/foreign/; these are its quick parts."""
import importlib.util
import os
import subprocess
import sys

import pytest
from conftest import ROOT, clean_environment


def results(script, launcher, tmp_path, *options):
    """(passed, failed, what it said)"""
    command = [sys.executable, ROOT / "tests" / "foreign" / script, "--short", "--launcher", launcher, "--keep", tmp_path / "kept", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), cwd=tmp_path)
    passed, failed = (int(word) for word in done.stdout.splitlines()[-1].split() if word.isdigit())
    assert (done.returncode == 0) == (failed == 0)
    return passed, failed, done.stdout + done.stderr


@pytest.mark.slow
def test_quick_modules_of_cpythons_own_test_suite(launcher, tmp_path):
    if not importlib.util.find_spec("test.test_sys_setprofile"):
        pytest.skip("CPython's test suite (Debian: libpython3.11-testsuite) is not installed for this Python")
    passed, failed, said = results("cpython.py", launcher, tmp_path, "--python", sys.executable)
    assert failed == 0 and passed > 500, said


def test_quick_programs_of_libtorchs_own_tests(launcher, tmp_path):
    if not os.path.exists("/usr/lib/libtorch-test"):
        pytest.fail("apt-get install libtorch-test")
    passed, failed, said = results("libtorch.py", launcher, tmp_path)
    assert failed == 0 and passed > 50, said
