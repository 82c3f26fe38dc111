"""Which command is started, and what is said of one that cannot be."""
import os
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
    assert "work.py(3): work" in torchprof("report", "run", "-t", "python").stdout


def test_a_script_whose_interpreter_is_not_there_is_named_with_it(torchprof, tmp_path):
    (tmp_path / "work.py").write_text("#!/no/such/python\n" + SCRIPT)
    (tmp_path / "work.py").chmod(0o755)
    done = torchprof("run", "./work.py")
    assert (done.returncode, done.stderr) == (127, "torchprof: cannot start './work.py': No such file or directory: "
                                              "its first line names /no/such/python, which is not there\n")
