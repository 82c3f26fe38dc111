"""Programs that enter seccomp go on under their filter as they do without us, and what could not be recorded there is said."""
import json
import subprocess
import sys

import pytest

from conftest import BUILD, SUPPORT

PYTHON = "/usr/bin/python3" if sys.executable.startswith("/usr/bin") else sys.executable

# What the kernel lets through of x86-64, by number.
READ, WRITE, CLOSE, MMAP, MPROTECT, MUNMAP, BRK, SIGACTION, SIGPROCMASK, SIGRETURN, IOCTL, MADVISE = 0, 1, 3, 9, 10, 11, 12, 13, 14, 15, 16, 28
EXIT, EXIT_GROUP, FUTEX, CLONE, WAIT, ROBUST, RSEQ = 60, 231, 202, 56, 61, 273, 334
LEAST = [READ, WRITE, SIGRETURN, EXIT, EXIT_GROUP]
MORE = LEAST + [CLOSE, MMAP, MPROTECT, MUNMAP, BRK, SIGACTION, IOCTL, FUTEX, MADVISE]
# What Pythons and C libraries call around a fork and a thread's start: 3.12 and later look how many threads there are and import warnings' parts.
FORKING = MORE + [CLONE, WAIT, ROBUST, RSEQ, SIGPROCMASK, 435, 186, 39, 24, 230, 302, 5, 8, 157, 204, 217, 257, 262]
KILL, KILL_THREAD, ALLOW, EPERM = 0x80000000, 0, 0x7fff0000, 0x50001

ENTER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
class Filter(ctypes.Structure): _fields_ = [('code', ctypes.c_uint16), ('jt', ctypes.c_uint8), ('jf', ctypes.c_uint8), ('k', ctypes.c_uint32)]
class Program(ctypes.Structure): _fields_ = [('size', ctypes.c_uint16), ('filter', ctypes.POINTER(Filter))]
def make(numbers, then, otherwise):
    n = len(numbers)
    code = [(0x20, 0, 0, 4), (0x15, 1, 0, 0xC000003E), (6, 0, 0, 0x80000000), (0x20, 0, 0, 0)]
    code += [(0x15, n - i, 0, number) for i, number in enumerate(numbers)] + [(6, 0, 0, otherwise), (6, 0, 0, then)]
    return Program(len(code), (Filter * len(code))(*code))
def enter(numbers, then=0x7fff0000, otherwise=0x80000000, flags=None):
    # Everything that the entry needs is made before it.
    program = make(numbers, then, otherwise)
    libc.prctl(38, 1, 0, 0, 0)
    if flags is None: return libc.prctl(22, 2, ctypes.byref(program), 0, 0)
    return libc.syscall(317, 1, flags, ctypes.byref(program))
def before(): pass
def after(): pass
def many(n):
    for i in range(n): after()
before()
after()
many(1)
libc.prctl, libc.syscall, os.write, os._exit
"""
MANY = 100000  # calls, of 8 bytes for each begin and end: more than what is mapped ahead
REASON = "the program entered seccomp"


@pytest.fixture
def both(run_torchprof, run_bare, program):
    """The program with us and without: the same output and status. The run comes back."""
    def run(python, text, name="program.py", **more):
        command = [python, program(ENTER + text, name)]
        bare = run_bare(command, env=more.get("env"))
        traced = run_torchprof(command, **more)
        assert (traced.status, traced.stdout_bytes) == (bare.returncode, bare.stdout), traced.stderr
        return bare, traced
    return run


def is_said(run):
    listed = json.loads((run.directory / "run.json").read_text())
    return REASON in run.stderr and any(REASON in json.dumps(process["sources"]) for process in listed["processes"])


def calls_of(run, name):
    return sum(e["name"].endswith(": " + name) for e in run.trace().events if e.get("cat") == "python_function")


ENDS = {
    "filter that kills": "enter(%r); many(%d); os.write(1, b'done'); os._exit(7)" % (LEAST, MANY),
    "filter that kills the thread": "enter(%r, otherwise=0); many(%d); os.write(1, b'done'); os._exit(7)" % (LEAST, MANY),
    "filter by the system call": "enter(%r, flags=0); many(%d); os.write(1, b'done'); os._exit(7)" % (LEAST, MANY),
    "strict mode": "libc.prctl(22, 1, 0, 0, 0); many(%d); os.write(1, b'done'); libc.syscall(60, 7)" % MANY,
    "strict mode by the system call": "libc.syscall(317, 0, 0, None); many(%d); os.write(1, b'done'); libc.syscall(60, 7)" % MANY,
    "filter and an orderly end": "enter(%r); many(%d); os.write(1, b'done')" % (MORE, MANY),
    "a trap": "enter(%r, otherwise=0x30000); many(%d); os.write(1, b'done'); os._exit(7)" % (LEAST, MANY),
}


@pytest.mark.parametrize("way", ENDS)
def test_a_program_lives_on_under_its_filter(both, check_trace, way):
    bare, run = both(PYTHON, ENDS[way])
    assert bare.stdout == b"done" and bare.returncode in (0, 7)
    assert is_said(run), run.stderr
    check_trace(run.trace())
    # In strict mode the processor's counter raises a signal: there is no clock any more.
    assert calls_of(run, "before") == 1 and (2 if "strict" in way else 10000) <= calls_of(run, "after") < MANY


# libc's functions as a library of this name has them, past the interposed ones.
OWN_FUNCTIONS = {
    "ctypes": "libc = ctypes.CDLL('libc.so.6')\nlibc.prctl, libc.syscall\n",
    "cffi": """
import cffi
ffi = cffi.FFI()
ffi.cdef("int prctl(int, long, long, long, long); long syscall(long, long, long, long);")
own = ffi.dlopen("libc.so.6")
def number(argument): return ctypes.addressof(argument._obj) if hasattr(argument, "_obj") else argument
class libc:
    prctl = lambda *a, call=own.prctl: call(*map(number, a))
    syscall = lambda *a, call=own.syscall: call(*map(number, a))
"""}


@pytest.mark.parametrize("flags", ["None", "0"], ids=["prctl", "syscall"])
@pytest.mark.parametrize("by", OWN_FUNCTIONS)
def test_libcs_own_functions_are_seen(both, check_trace, python, by, flags):
    if subprocess.run([python.path, "-c", "import " + by], capture_output=True).returncode:
        pytest.skip("%s (Debian: python3-%s) is not installed for this Python" % (by, by))
    bare, run = both(python.path, OWN_FUNCTIONS[by] + "enter(%r, flags=%s); many(%d); os.write(1, b'done'); os._exit(7)" % (LEAST, flags, MANY))
    assert bare.stdout == b"done" and bare.returncode == 7 and is_said(run), run.stderr
    check_trace(run.trace())
    assert calls_of(run, "before") == 1 and 1000 <= calls_of(run, "after") < MANY


def test_little_that_comes_after_is_all_there(both, python):
    _, run = both(python.path, "def unmistakable(): pass\nenter(%r); many(1000); unmistakable(); os._exit(0)" % LEAST)
    assert is_said(run) and calls_of(run, "after") == 1002 and calls_of(run, "unmistakable") == 1
    assert "lost" not in run.stderr


@pytest.mark.parametrize("text", ["enter([169], 0x80000000, 0x7fff0000)", "enter(%r, flags=0x8000)" % LEAST, "libc.prctl(22, 2, None, 0, 0)",
                                  "libc.syscall(317, 1, 0, ctypes.c_void_p(8))", "enter([], flags=0x8000)", "libc.prctl(22, 5, 0, 0, 0)"],
                         ids=["of reboot alone", "that is refused", "that is none", "at a bad address", "that is refused and kills all", "no mode"])
def test_a_filter_that_lets_us_be_changes_nothing(both, text):
    _, run = both(PYTHON, "print(%s, ctypes.get_errno()); many(%d)" % (text, MANY))
    assert REASON not in run.stderr
    assert calls_of(run, "after") == MANY + 2


@pytest.mark.once
def test_a_filter_with_errors_instead_of_death(both):
    """Our own calls fail as the program's do."""
    _, run = both(PYTHON, "enter(%r, otherwise=%d); many(%d); print(libc.getpid(), 'done')" % (MORE, EPERM, MANY))
    assert calls_of(run, "before") == 1 and calls_of(run, "after") > 1000


def test_all_threads_at_once(both):
    text = """
import threading
start, stop = threading.Event(), []
def busy():
    start.set()
    while not stop: after()
thread = threading.Thread(target=busy)
thread.start()
start.wait()
result = enter(%r, flags=1)
many(%d)
stop.append(1)
thread.join()
os.write(1, b'%%d' %% result)
os._exit(0)
""" % (MORE + [SIGPROCMASK, 24, 230, 98], MANY)
    bare, run = both(PYTHON, text)
    assert bare.stdout == b"0" and is_said(run)


# A program that has been asked for its window, as `torchprof ctl` does it; without us nobody listens.
ASK = """
import signal, socket, time
def connect():
    try:
        spool = os.environ['TORCHPROF_OUTPUT'] + '/spool'
        (door,) = [name for name in os.listdir(spool) if name.endswith('.ctl') and '.%d.' % os.getpid() in name]
        asker, place = socket.socket(socket.AF_UNIX), os.open(spool, os.O_PATH)
        asker.settimeout(600)
        asker.connect('/proc/self/fd/%d/%s' % (place, door))
        os.close(place)
        return asker
    except (KeyError, OSError, ValueError): return None
def ask(text):
    if not (asker := connect()): return 'ok: open'
    asker.sendall(text + b'\\n')
    return asker.recv(512).decode()
def say(asker, text):
    try: asker and os.write(asker.fileno(), text)
    except BrokenPipeError: pass  # who listened is gone
def wait():
    while 'ok: open' not in ask(b'status'): time.sleep(0.01)
"""
AFTER = [n for n in MORE if n != FUTEX] + [35, 230, 62]  # to sleep, to send a signal; our threads need more
ENTER_ALL = "result = enter(%r, flags=1); " % AFTER
END = "many(%d); os.write(1, b'%%d' %% result); os._exit(7)" % MANY
# Past the time at which our thread would have something to do.
PASSES = "time.sleep(1.2); "
WINDOWS = {
    "time, closed": ("after=1s", False, ENTER_ALL + PASSES),
    "time, open": ("after=500ms,for=1h", True, "wait(); " + ENTER_ALL + PASSES),
    "signal, closed": ("signal=USR2", False, "traced = connect() is not None; " + ENTER_ALL + "traced and os.kill(os.getpid(), 12); time.sleep(0.2); "),
    "signal, open": ("signal=USR2", True, "traced = connect() is not None; traced and (os.kill(os.getpid(), 12), wait()); " + ENTER_ALL +
                     "traced and os.kill(os.getpid(), 12); time.sleep(0.2); "),
    "manual, closed": ("manual", False, "asker = connect(); " + ENTER_ALL + "say(asker, b'start'); "),
    "manual, open": ("manual", True, "ask(b'start'); asker = connect(); " + ENTER_ALL + "say(asker, b'stop'); "),
}


@pytest.mark.once
@pytest.mark.parametrize("way", WINDOWS)
def test_our_thread_of_the_window_is_gone_when_all_threads_are_filtered(both, way):
    window, is_open, text = WINDOWS[way]
    bare, run = both(PYTHON, ASK + "pid = os.getpid(); os.getpid = lambda: pid\n" + text + END, options=["--window", window])
    assert bare.stdout == b"0" and is_said(run), run.stderr
    assert ("its window is closed, and does not open any more" in run.stderr) == (not is_open)
    if is_open:
        assert 10000 < calls_of(run, "after") < MANY


@pytest.mark.once
@pytest.mark.parametrize("window", ["after=1s", "manual"])
def test_our_thread_is_there_again_when_the_kernel_refused_the_filter(both, window):
    """Uses a flag that does not exist. The program must get the kernel's answer."""
    text = ASK + "result = enter(%r, flags=0x8001)\nask(b'start'); wait()\nmany(10)\nprint(result)" % AFTER
    bare, run = both(PYTHON, text, options=["--window", window])
    assert bare.stdout == b"-1\n" and calls_of(run, "after") == 10


def test_a_forked_child_of_a_filtered_process_starts_no_thread(both):
    text = "enter(%r)\npid = os.fork()\nif pid == 0: os._exit(3)\nprint(os.waitpid(pid, 0)[1])" % FORKING
    bare, run = both(PYTHON, text, options=["--window", "after=1h"])
    assert bare.stdout == b"768\n"


@pytest.mark.once
def test_our_thread_of_the_gpu_is_gone_when_all_threads_are_filtered(both, torch_python):
    sim = BUILD / "tests" / "cupti_sim" / "libcupti.so.12"
    # The simulated GPU's thread names itself when it begins, which the filter forbids.
    text = """
import glob, time
from simulated_gpu import everything
everything()
while 'simulated GPU\\n' not in [open(name).read() for name in glob.glob('/proc/self/task/*/comm')]: time.sleep(0.01)
""" + ENTER_ALL + PASSES + END
    bare, run = both(torch_python, text, env={"SIM": sim, "PYTHONPATH": SUPPORT})
    assert bare.stdout == b"0" and is_said(run), run.stderr
    assert sum(e.get("cat") == "kernel" for e in run.trace().events) == 9


def test_a_child_of_fork_and_a_thread_after_it(both):
    text = """
import threading
enter(%r)
threading.Thread(target=many, args=[1000]).start()
pid = os.fork()
if pid == 0:
    many(1000)
    os._exit(3)
print(os.waitpid(pid, 0)[1])
""" % FORKING
    bare, run = both(PYTHON, text)
    assert bare.stdout == b"768\n" and is_said(run)


WITHOUT_OURS = "enter([285, 296, 83, 258, 191, 193], 0x80000000, 0x7fff0000); "  # fallocate, pwritev, mkdir, mkdirat, getxattr, fgetxattr
PROGRAMS = {
    "exec": "os.execv(sys.executable, [sys.executable, '-c', 'print(5)'])",
    "exec with an environment": "os.execve(sys.executable, [sys.executable, '-c', 'print(5)'], {**os.environ, 'TORCHPROF_DISABLE': '0'})",
    "subprocess": "import subprocess; subprocess.run([sys.executable, '-c', 'print(5)'], check=True)",
    "system": "os.system(sys.executable + ' -c \"print(5)\"')",
    "posix_spawn": "os.waitpid(os.posix_spawn(sys.executable, [sys.executable, '-c', 'print(5)'], os.environ), 0)",
    "a child alone": "import subprocess; subprocess.run([sys.executable, '-c', 'print(5)'], check=True, preexec_fn=lambda: enter([285, 296], 0x80000000, 0x7fff0000))",
}


@pytest.mark.once
@pytest.mark.parametrize("way", PROGRAMS)
def test_a_program_that_inherits_the_filter_is_left_alone(both, way):
    bare, run = both(PYTHON, (WITHOUT_OURS if way != "a child alone" else "") + PROGRAMS[way])
    assert bare.stdout == b"5\n" and bare.returncode == 0
    assert "programs that it starts are not profiled" in run.stderr


def test_operators_under_a_filter(both, torch_python):
    text = """
import torch
torch.set_num_threads(1)
x = torch.ones(4)
x + x; x * x
enter(%r)
for i in range(30000): x * x
os.write(1, b'%%d' %% int(x.sum()))
os._exit(0)
""" % MORE
    bare, run = both(torch_python, text)
    assert bare.stdout == b"4" and is_said(run)
    assert 1000 < sum(e["name"] == "aten::mul" for e in run.trace().events if e.get("cat") == "cpu_op") < 30000
