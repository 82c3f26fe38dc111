"""The commands' messages and help texts, word for word. TORCHPROF_UPDATE_GOLDEN=1 writes tests/e2e/launcher/golden/ anew, for people to look at the difference."""
import pathlib
import re

import pytest

from conftest import setting

pytestmark = pytest.mark.once

GOLDEN = pathlib.Path(__file__).parent / "golden"
UPDATE = setting("UPDATE_GOLDEN")


def assert_golden(name, text):
    if UPDATE:
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


@pytest.mark.parametrize("subcommand", ["", "run", "report", "export", "merge", "diff", "ctl", "where", "top", "doctor"])
def test_help(torchprof, subcommand):
    assert_golden("help-%s.txt" % (subcommand or "of-all"), torchprof("help", *[subcommand] if subcommand else []).stdout)


def test_doctor_of_a_python_with_torch(torchprof, torch_python):
    done = torchprof("doctor", "--", torch_python)
    assert done.returncode == 0, done.stderr
    # Lines that differ on other machines.
    text = re.sub(r"^(machine|torchprof|library|clock|output|gpu|nvtx|python) +.*", r"\1 ...", done.stdout, flags=re.MULTILINE)
    text = re.sub(r"/\S+/libtorch_cpu\S*|1\.13\.\d\S*", "...", text)
    assert_golden("doctor.txt", text)


def test_merge(torchprof, run_torchprof, torch_python, program, tmp_path):
    for name in ("on_one", "on_two"):
        program("def f(): pass\nfor _ in range(10): f()\n", name + ".py")
        run = run_torchprof([torch_python, name + ".py"],  # as short as it is where the temporary directory has a long name: lines are cut
                            directory=tmp_path / name, options=["-q", "--python", "functions", "--ops", "off", "--memory", "off"])
        assert run.status == 0, run.stderr
    done = torchprof("merge", tmp_path / "on_one", tmp_path / "on_two", "-o", tmp_path / "all", "--format", "kineto")
    assert (done.returncode, done.stdout) == (0, "")
    text = done.stderr.replace(str(tmp_path), "TMP").replace(str(torch_python), "PYTHON")
    text = re.sub(r"(torchprof: Python functions.*?\n).*?(torchprof: \n)", r"\1...\n\2", text, flags=re.DOTALL)
    text = re.sub(r"[\d.]+ (ms|s)\b|(?<=process )\d+|[\d,]+(?= Python calls)", "N", text)
    assert_golden("merge.txt", text)
