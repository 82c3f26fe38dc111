"""A process whose root or mounts are not those of the launcher: nothing of ours is left there, and what is missing is said."""
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

from conftest import clean_environment, profile
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


def test_programs_in_another_root_start_without_us(run_torchprof, run_bare, jail):
    command = ["chroot", jail, "/bin/sh", "-c", 'echo hi; /bin/sh -c "echo ho"; echo "<$LD_PRELOAD$TORCHPROF_OUTPUT>"']
    bare, run = run_bare(command), run_torchprof(command)
    assert (run.status, run.stdout_bytes) == (0, bare.stdout) and bare.stdout == b"hi\nho\n<>\n", run.stderr
    assert "ld.so" not in run.stderr and "its processes run in another root" in run.stderr


def test_every_way_to_start_a_program_in_another_root(run_torchprof, run_bare, program, jail):
    text = """
        import ctypes, os, subprocess, sys
        libc = ctypes.CDLL(None)
        os.chroot(sys.argv[1]); os.chdir("/")
        SHELL = ["sh", "-c", "echo $0 $LD_PRELOAD $TORCHPROF_OUTPUT; exec /bin/sh -c 'echo again'"]
        def start(name, call):
            print(name, call(), flush=True)
        start("run", lambda: subprocess.run(SHELL).returncode)
        start("run, empty", lambda: subprocess.run(SHELL, env={"PATH": "/bin"}).returncode)
        start("system", lambda: os.system(SHELL[2]))
        start("popen", lambda: os.popen(SHELL[2]).read())
        start("spawn", lambda: os.waitpid(os.posix_spawn("/bin/sh", SHELL, os.environ), 0)[1])
        start("spawnp", lambda: os.waitpid(os.posix_spawnp("sh", SHELL, os.environ), 0)[1])
        start("again", lambda: os.environ.get("LD_PRELOAD", "") != "" or "bare")
        libc.popen.restype = ctypes.c_void_p
        libc.pclose.argtypes = [ctypes.c_void_p]
        start("libc's popen", lambda: libc.pclose(libc.popen(SHELL[2].encode(), b"w")))
        os.execv("/bin/sh", SHELL)
        """
    command = [PYTHON, program(textwrap.dedent(text)), jail]
    bare, run = run_bare(command, env={"LD_PRELOAD": None}), run_torchprof(command)
    assert bare.returncode == 0 and bare.stderr == b"", bare
    assert (run.status, run.stdout_bytes) == (0, bare.stdout.replace(b"again bare", b"again True")), run.stderr
    assert "ld.so" not in run.stderr, run.stderr


def test_a_program_where_the_library_is_hidden_is_named(prefix, mount_namespace, program, tmp_path):
    tree = shutil.copytree(prefix, tmp_path / "tree")
    text = """
        import ctypes, subprocess, sys
        assert ctypes.CDLL(None).mount(b"none", sys.argv[1].encode(), b"tmpfs", 0, None) == 0
        for name in "true", "no such program", "true":
            try: print(subprocess.run([name], capture_output=True))
            except OSError as error: print(error)
        """
    run = profile(tree / "bin" / "torchprof", tmp_path / "run", [*mount_namespace, PYTHON, program(textwrap.dedent(text)), tree / "lib"])
    assert run.status == 0 and run.stdout.count("returncode=0, stdout=b'', stderr=b''") == 2, (run.stdout, run.stderr)
    (untraced,) = json.loads((run.directory / "run.json").read_text())["untraced"]
    assert untraced["program"].endswith("/true") and untraced["times"] == 2
    assert untraced["reason"] == "is started where libtorchprof.so is not (another root or mount namespace)"
    assert "untraced: %s (2 times) %s" % (untraced["program"], untraced["reason"]) in run.stderr


@pytest.mark.parametrize("host", ["this", "another"])
def test_on_another_host_a_process_makes_its_own_directory(launcher, tmp_path, host):
    lines = subprocess.run([launcher, "run", "--dry-run", "-o", tmp_path / "run", "true"], capture_output=True, text=True, env=clean_environment(),
                           check=True).stdout.splitlines()
    said = "TORCHPROF_LAUNCHED=%s:%s" % (os.uname().nodename if host == "this" else "another", tmp_path / "run")
    done = subprocess.run(["env", *lines, said, PYTHON, "-c", "print(1)"], env=clean_environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1\n")
    if host == "this":
        assert "is not there for process" in done.stderr and not (tmp_path / "run").exists()
    else:
        assert done.stderr == "" and len(list((tmp_path / "run" / "spool").glob("*.spool"))) == 1
