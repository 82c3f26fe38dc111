"""With the system calls of Linux 4.18 alone everything is recorded as on this kernel."""
import json
import subprocess
import sys

from conftest import PATIENCE, SUPPORT, clean_environment

# Newer calls of ours: pidfd_open (Linux 5.3) while torchprof waits for processes that outlive the command, MADV_POPULATE_WRITE (5.14) where the
# file of a process grows. libc has newer ones of its own: clone3, faccessat2, close_range.
PROGRAM = """
import ctypes, errno, os, subprocess, sys, threading, time

def outlives():
    pass

def work(n):
    return n and work(n - 1)

if len(sys.argv) > 1:
    parent = int(sys.argv[1])
    while os.getppid() == parent:
        time.sleep(0.01)
    outlives()
    sys.exit()
libc = ctypes.CDLL(None, use_errno=True)
def fails(*call):
    return libc.syscall(*call) == -1 and errno.errorcode[ctypes.get_errno()]
print(fails(434, os.getpid(), 0), fails(28, 0, 0, 23))  # pidfd_open, MADV_POPULATE_WRITE of nothing
thread = threading.Thread(target=work, args=(100,))
thread.start()
thread.join()
for _ in range(2000):
    work(100)
subprocess.run(["true"], check=True)
child = os.fork()
if child == 0:
    work(50)
    os._exit(0)
os.waitpid(child, 0)
subprocess.Popen([sys.executable, __file__, str(os.getpid())])
"""


def record(launcher, directory, command, before=()):
    """The program's output, and how often its own functions were called; `before` stands before torchprof."""
    done = subprocess.run([*before, launcher, "run", "-o", directory, "-w", "all", "--", *command], capture_output=True, text=True,
                          env=clean_environment(), timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    rows = json.loads(subprocess.run([launcher, "report", directory, "-t", "python", "--json"], capture_output=True, text=True, check=True,
                                     env=clean_environment()).stdout)["tables"][0]["rows"]
    return done.stdout, {row["name"].rpartition(": ")[2]: row["calls"] for row in rows if "program.py" in row["name"]}


def test_everything_is_recorded(launcher, python, program, tmp_path):
    command = [python.path, program(PROGRAM)]
    said, calls = record(launcher, tmp_path / "new", command)
    assert said == "False False\n" and calls["work"] == 2001 * 101 + 51 and calls["outlives"] == 1
    assert record(launcher, tmp_path / "old", command, [sys.executable, SUPPORT / "old_kernel.py"]) == ("ENOSYS EINVAL\n", calls)
