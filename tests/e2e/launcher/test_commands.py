"""Which command is started, and what is said of one that cannot be."""
import os
import re
import shlex
import sys

import pytest

pytestmark = pytest.mark.once

SCRIPT = "import sys\nprint('ran', *sys.argv[1:])\ndef work(): return sum(range(1000))\nfor _ in range(3): work()\n"


@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_python_script_that_cannot_be_started_itself_is_run_with_the_python_of_path(torchprof, tmp_path, mode):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(sys.executable)
    (tmp_path / "work.py").write_text(SCRIPT)
    (tmp_path / "work.py").chmod(mode)
    done = torchprof("run", "-o", "run", "./work.py", "--an-option", "b c", env={"PATH": "%s:%s" % (tmp_path / "bin", os.environ["PATH"])})
    assert (done.returncode, done.stdout) == (0, "ran --an-option b c\n"), done.stderr
    why = "has no #! line" if mode == 0o755 else "is not executable"
    assert done.stderr.splitlines()[0] == "torchprof: ./work.py %s: it is run with python3 (%s/bin/python3)" % (why, tmp_path)
    assert "work.py(3): work" in torchprof("report", "run", "-t", "python", "--filter", "work.py").stdout


def test_a_script_whose_interpreter_is_not_there_is_named_with_it(torchprof, tmp_path):
    (tmp_path / "work.py").write_text("#!/no/such/python\n" + SCRIPT)
    (tmp_path / "work.py").chmod(0o755)
    done = torchprof("run", "./work.py")
    assert (done.returncode, done.stderr) == (127, "torchprof: cannot start './work.py': No such file or directory: "
                                              "its first line names /no/such/python, which is not there\n")


LEAK = """import torch
x, kept = torch.ones(800, 800), []
for step in range(40):
    with torch.profiler.record_function("ProfilerStep#%d" % step): kept.append(x @ x)
"""
PLAIN = "def work(): return sum(range(100_000))\nfor _ in range(30): work()\n"


@pytest.mark.parametrize("name", ["run", "a run's", "it\'s \"$HOME\" `x`; !"])
@pytest.mark.parametrize("program, table, options", [(LEAK, "memory", []), (LEAK, "memory", ["--discard"]), (PLAIN, "python", [])])
def test_the_summary_ends_with_a_command_that_shows_more_of_what_it_has_first(torchprof, torch_python, tmp_path, program, table, options, name):
    (tmp_path / "work.py").write_text(program)
    done = torchprof("run", "-o", name, *options, torch_python, "work.py")
    more, = re.findall("^more: torchprof (report .*?)   \\((.*)\\)$", done.stderr, re.MULTILINE)
    words = shlex.split(more[0])
    assert words == ["report", str(tmp_path / name), "-t", table], done.stderr
    shown = torchprof(*words)
    assert shown.returncode == 0 and len(shown.stdout.splitlines()) > 4, shown


def test_where_nothing_was_recorded_no_command_is_said_to_show_more(torchprof, tmp_path):
    done = torchprof("run", "-o", "run", "/bin/true")
    assert done.returncode == 0 and "more:" not in done.stderr, done.stderr
