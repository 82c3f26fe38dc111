"""tests/emulated.py names tests that there are."""
import re

import emulated
from conftest import ROOT


def test_each_exception_is_a_test():
    named = [test for tests in emulated.NOT_EMULATED.values() for test in tests]
    assert len(named) == len(set(named)) > 5
    for test in named:
        file, _, name = test.partition("::")
        text = (ROOT / "tests" / "e2e" / file).read_text()
        assert not name or re.search(r"^def %s\(" % re.escape(name), text, re.M), test


def test_an_exception_is_found_by_the_name_of_a_test():
    reason, tests = next(iter(emulated.NOT_EMULATED.items()))
    test = next(test for test in tests if "::" in test)
    assert emulated.reason_for("tests/e2e/%s[some-parameter/1::2]" % test) == "under an emulator: " + reason
    assert emulated.reason_for("tests/e2e/%s_and_more" % test) is None
    assert emulated.reason_for("tests/e2e/python/test_python.py::test_x[tests/e2e/%s]" % test) is None
