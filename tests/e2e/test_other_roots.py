"""A process whose root or mounts are not those of the launcher: nothing of ours is left there, and what is missing is said."""
import os
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

from conftest import profile
from test_limits import counted

pytestmark = [pytest.mark.once, pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root")]

PYTHON = sys.executable


@pytest.fixture
def jail(tmp_path):
    """A root in which there is a shell and no more."""
    place = tmp_path / "jail"
    (place / "bin").mkdir(parents=True)
    shutil.copy("/bin/sh", place / "bin" / "sh")
    for library in re.findall(r"/\S+", subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout):
        (place / library[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place / library[1:])
    return place


def everything_in(place):
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


COUNTS = """
import os, sys
def f(n): return n + 1
def count(n=0):
    for _ in range(50000): n = f(n)
    return n
"""


def test_a_child_forked_in_another_root_leaves_nothing_there(run_torchprof, check_trace, program, jail):
    text = COUNTS + textwrap.dedent("""
        count()
        os.chroot(sys.argv[1])
        if os.fork() == 0:
            print(count(), flush=True)
            os._exit(0)
        sys.exit(os.wait()[1])
        """)
    before = everything_in(jail)
    run = run_torchprof([PYTHON, program(text), jail])
    assert (run.status, run.stdout) == (0, "50000\n"), run.stderr
    assert everything_in(jail) == before
    assert counted(check_trace(run.trace()), "f") == 50000
    assert len(re.findall(r"torchprof: %s/spool is not there for process \d+ \(in another root or mount namespace\?\): "
                          r"nothing of it is recorded, the program goes on\n" % run.directory, run.stderr)) == 1, run.stderr


def test_under_a_mount_that_hides_the_run_nothing_is_made_and_the_summary_says_why(launcher, mount_namespace, program, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    text = COUNTS + "print(count(), os.listdir(sys.argv[1]))"
    command = [*mount_namespace, "sh", "-c", 'mount -t tmpfs none "$3" && exec "$@"', "sh", PYTHON, program(text), hidden]
    run = profile(launcher, hidden / "run", command, cwd=tmp_path)
    assert (run.status, run.stdout) == (0, "50000 []\n"), run.stderr
    assert "%s/spool is not there for process " % run.directory in run.stderr
    assert "torchprof: no process of the command was traced." in run.stderr
    assert "its processes run in another root or mount namespace, where the run directory is not.\n" in run.stderr


def test_a_process_that_comes_when_the_spool_is_gone_makes_it_again(run_torchprof, check_trace, program):
    """The launcher removes it once it has exported what was in it."""
    run = run_torchprof(["sh", "-c", 'rmdir "$TORCHPROF_OUTPUT/spool" && exec "$@"', "sh", PYTHON, program(COUNTS + "print(count())")])
    assert (run.status, run.stdout) == (0, "50000\n"), run.stderr
    assert counted(check_trace(run.trace()), "f") == 50000
