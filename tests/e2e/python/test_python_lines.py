"""Time by line of Python: operators and calls by the lines of the program from which they came, and operators by their native stacks."""
import json
import sys

import pytest

from conftest import profile

PROGRAM = """import sys, torch
def work(x):
    y = torch.mm(x, x)
    return y @ x
def outer(x):
    for _ in range(3):
        work(x)
outer(torch.ones(200, 200))
"""


def lines_of(launcher, torchprof, directory, option):
    """{line of the program: row of the table}, and {(operator, line): row}"""
    (directory / "lines.py").write_text(PROGRAM)
    run = profile(launcher, directory / "run", [sys.executable, "lines.py"], options=[*option, "-q"], cwd=directory)
    assert run.status == 0, run.stderr
    done = torchprof("report", run.directory, "--json", "-t", "python,ops", "--group-by", "line")
    assert done.returncode == 0, done.stderr
    tables = {table["name"]: table["rows"] for table in json.loads(done.stdout)["tables"]}
    return ({row["name"]: row for row in tables["python_lines"] if row["name"].startswith("lines.py")},
            {(row["name"], row["line"]): row for row in tables["ops"]})


@pytest.mark.parametrize("option", [["--native", "on"], ["--native", "on", "--python", "calls"]], ids=" ".join)
def test_operators_by_the_lines_that_call_them(launcher, torchprof, tmp_path, option):
    lines, operators = lines_of(launcher, torchprof, tmp_path, option)
    for line in "lines.py(3): work", "lines.py(4): work":
        assert lines[line]["calls"] == 3 and lines[line]["self_ns"] > 0
        assert operators["aten::mm", line]["calls"] == 3
    assert operators["aten::matmul", "lines.py(4): work"]["calls"] == 3
    products = sum(operators["aten::mm", line]["cpu_total_ns"] for line in ("lines.py(3): work", "lines.py(4): work"))
    for caller in "lines.py(7): outer", "lines.py(8): <module>":
        assert products <= lines[caller]["total_ns"] and lines[caller]["self_ns"] <= lines[caller]["total_ns"]


@pytest.mark.parametrize("option", [[], ["--python", "calls"]], ids=["default", "calls"])
def test_all_calls_by_the_lines_of_the_program(launcher, torchprof, tmp_path, option):
    lines, operators = lines_of(launcher, torchprof, tmp_path, option)
    for line in "lines.py(3): work", "lines.py(4): work":
        assert lines[line]["calls"] == 3 and lines[line]["self_ns"] > 0
        assert operators["aten::mm", line]["calls"] == 3
        assert lines[line]["total_ns"] >= operators["aten::mm", line]["cpu_total_ns"]
    assert lines["lines.py(7): outer"]["calls"] == 3
    inside = lines["lines.py(3): work"]["total_ns"] + lines["lines.py(4): work"]["total_ns"]
    assert lines["lines.py(8): <module>"]["total_ns"] >= lines["lines.py(7): outer"]["total_ns"] >= inside
    assert lines["lines.py(7): outer"]["self_ns"] < inside
