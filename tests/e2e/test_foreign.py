"""Other people's test programs: what passes without us passes with us. The whole of each is a script in tests/foreign/; these are its quick parts."""
import importlib.util
import subprocess
import sys

import pytest
from conftest import ROOT, clean_environment


def test_quick_modules_of_cpythons_own_test_suite(launcher, tmp_path):
    if not importlib.util.find_spec("test.test_sys_setprofile"):
        pytest.skip("CPython's test suite (Debian: libpython3.11-testsuite) is not installed for this Python")
    script = [sys.executable, ROOT / "tests" / "foreign" / "cpython.py", "--short", "--python", sys.executable, "--launcher", launcher]
    done = subprocess.run([*script, "--keep", tmp_path / "kept"], capture_output=True, text=True, env=clean_environment(), cwd=tmp_path)
    passed, failed = (int(word) for word in done.stdout.splitlines()[-1].split() if word.isdigit())
    assert (done.returncode, failed) == (0, 0) and passed > 500, done.stdout + done.stderr
