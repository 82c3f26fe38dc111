"""What the arguments of tests/run choose."""
import pytest

import chosen

TESTS = ["recorder", "recorder_with_pages_of_16_kib", "spool_reader", "gpu_table"]
SOURCES = {"recorder_test.cpp": "tests/unit/tracer", "spool_reader_test.cpp": "tests/unit/tracer", "gpu_table_test.cpp": "tests/unit/report"}


def sources_below(path):
    return [chosen.ROOT / folder / name for name, folder in SOURCES.items() if (chosen.ROOT / folder / name).is_relative_to(path)]


@pytest.mark.parametrize("arguments, units, others", [
    ([], TESTS, ["tests/house", "tests/e2e"]),
    (["-x", "--run-slow"], TESTS, ["-x", "--run-slow", "tests/house", "tests/e2e"]),
    (["-k", "recorder"], TESTS[:2], ["-k", "recorder", "tests/house", "tests/e2e"]),
    (["-k", "RECORDER and not 16"], ["recorder"], ["-k", "RECORDER and not 16", "tests/house", "tests/e2e"]),
    (["-kgpu or (spool and reader)"], TESTS[2:], ["-kgpu or (spool and reader)", "tests/house", "tests/e2e"]),
    (["-k", "no_such_name"], [], ["-k", "no_such_name", "tests/house", "tests/e2e"]),
    (["tests/e2e/python"], [], ["tests/e2e/python"]),
    (["tests/e2e/python/test_gc.py::test_of_a_name"], [], ["tests/e2e/python/test_gc.py::test_of_a_name"]),
    (["tests/unit/tracer/recorder_test.cpp"], ["recorder"], []),
    (["tests/unit/tracer", "-k", "spool"], ["spool_reader"], []),
    (["tests/unit/report", "tests/house", "-x"], ["gpu_table"], ["tests/house", "-x"]),
    (["tests/unit"], ["recorder", "spool_reader", "gpu_table"], []),
])
def test_arguments_choose_tests(arguments, units, others):
    assert chosen.units(TESTS, arguments, sources_below) == units
    assert chosen.for_pytest(arguments) == others


@pytest.mark.parametrize("expression", ["and", "(a", "a b", "not"])
def test_what_is_no_expression_is_refused(expression):
    with pytest.raises(SystemExit, match="is no expression"):
        chosen.fits(expression, "a")
