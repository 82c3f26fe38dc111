"""The command under `torchprof run` lives and ends as it would alone: status, signals, terminal, descriptors, children."""
import contextlib
import ctypes
import gzip
import json
import os
import pathlib
import pty
import re
import resource
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from conftest import PATIENCE, clean_environment, profile

pytestmark = pytest.mark.once

PYTHON = sys.executable


def wait_for(condition, what):
    """The first true value of condition()."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, what + " did not come"
        time.sleep(0.01)
    return value


def text_of(path):
    return path.read_text() if path.exists() else ""


def state_of(pid):
    return pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0]


def has_ended(pid):
    """A process that ends has no memory, thus no command line, before it closes its files and is a zombie."""
    try:
        return state_of(pid) in "ZX"
    except OSError:
        return True


@pytest.fixture
def start(launcher, tmp_path):
    """start(COMMAND, option...) starts `torchprof run -o DIR` in a session of its own; whatever is left is killed."""
    started = []

    def run(command, *options, **more):
        process = subprocess.Popen([launcher, "run", "-o", tmp_path / "run", *options, "--", *map(str, command)], cwd=tmp_path,
                                   env=clean_environment(more.pop("env", None)), start_new_session=True,
                                   **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more})
        started.append(process)
        return process
    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


ENDINGS = {
    "status 0": ("pass", 0),
    "status 3": ("raise SystemExit(3)", 3),
    "status 255": ("raise SystemExit(255)", 255),
    "an exception": ("1 / 0", 1),
    "os._exit": ("os._exit(7)", 7),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "a real-time signal": ("os.kill(os.getpid(), signal.SIGRTMIN + 2)", -(signal.SIGRTMIN + 2)),
    "abort": ("os.abort()", -signal.SIGABRT),
    "a segmentation fault": ("ctypes.string_at(0)", -signal.SIGSEGV),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_end_is_the_commands_own(run_torchprof, run_bare, program, ending):
    statement, status = ENDINGS[ending]
    command = [PYTHON, program("import ctypes, os, signal, sys\nprint('before', flush=True)\n" + statement)]
    bare, run = run_bare(command), run_torchprof(command)
    assert (run.status, run.stdout_bytes) == (bare.returncode, bare.stdout) == (status, b"before\n")
    info = json.loads((run.directory / "run.json").read_text())
    assert (info.get("exit_status"), info.get("signal")) == ((status, None) if status >= 0 else (None, -status))
    assert [process["command"] for process in info["processes"]] == [list(map(str, command))]


def test_the_launcher_dumps_no_core_of_its_own(launcher, tmp_path):
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    process = subprocess.Popen([launcher, "run", "-o", "run", "sh", "-c", "kill -ABRT $$"], cwd=tmp_path, env=clean_environment(),
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, unlimited))
    _, status = os.waitpid(process.pid, 0)
    process.returncode = status
    assert os.WTERMSIG(status) == signal.SIGABRT and not os.WCOREDUMP(status)


def test_stdout_and_stdin_are_the_same_byte_for_byte(run_torchprof, run_bare, program):
    everything = bytes(range(256)) * 1000
    command = [PYTHON, program("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])")]
    bare, run = run_bare(command, stdin=everything), run_torchprof(command, stdin=everything)
    assert run.stdout_bytes == bare.stdout == everything[::-1]


SURROUNDINGS = {
    # SigQ counts what is queued for all processes of the user, the tests beside this one too; its limit is compared.
    "signal mask and dispositions": ["sed", "-n", "s|^SigQ:.*/|SigQ: |; /^Sig/p", "/proc/self/status"],
    "open files": ["sh", "-c", "ls /proc/self/fd"],
    "process group and session": [PYTHON, "-c", "import os; print(os.getpgrp(), os.getsid(0))"],
    "limits": ["cat", "/proc/self/limits"],
    "nice, dumpable and working directory": [PYTHON, "-c", "import os; print(os.nice(0), os.getcwd(), os.stat('/proc/self').st_uid)"],
}


@pytest.mark.parametrize("what", SURROUNDINGS)
def test_what_the_command_finds_around_it_is_the_same(launcher, tmp_path, what):
    def output_of(command):
        """As started by somebody who ignores SIGHUP and SIGCHLD, blocks SIGUSR2 and leaves a file open."""
        def prepare():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        with open("/dev/null") as open_file:
            done = subprocess.run(command, stdout=subprocess.PIPE, env=clean_environment(), cwd=tmp_path, preexec_fn=prepare,
                                  pass_fds=[open_file.fileno()], timeout=PATIENCE)
        return done.returncode, done.stdout
    command = SURROUNDINGS[what]
    assert output_of([launcher, "run", "-o", tmp_path / "run", "--", *command]) == output_of(command)


COUNTS_SIGNALS = """
    import signal, sys, time
    seen = []
    for number in map(int, sys.argv[1].split(",")):
        signal.signal(number, lambda number, frame: seen.append(number))
    print("ready", flush=True)
    while not seen:
        time.sleep(0.01)
    print("first", flush=True)
    time.sleep(0.5)
    print(*seen, flush=True)
    """


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH", "SIGVTALRM", "SIGPROF",
                                  "SIGXCPU", "SIGXFSZ", "SIGPIPE", "SIGIO", "SIGPWR", "SIGURG", "SIGCHLD", "SIGABRT", "SIGRTMIN", "SIGRTMAX"])
def test_a_signal_to_the_launcher_reaches_the_command_once(start, program, name):
    number = int(getattr(signal, name))
    process = start([PYTHON, program(textwrap.dedent(COUNTS_SIGNALS)), number])
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.communicate(timeout=PATIENCE)[0] == "first\n%d\n" % number
    assert process.returncode == 0


# "both": as timeout(1) does.
TO_A_GROUP = {"group": lambda pid, number: os.killpg(pid, number), "both": lambda pid, number: (os.kill(pid, number), os.killpg(pid, number))}


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
@pytest.mark.parametrize("to", TO_A_GROUP)
def test_a_signal_to_the_group_reaches_the_command_once(start, program, to, name):
    """It reaches the launcher, too. And it says nothing of the next one, which may be to the launcher alone."""
    number = int(getattr(signal, name))
    process = start([PYTHON, program(textwrap.dedent(COUNTS_SIGNALS).replace("print(*seen", "print(len(seen)")), number])
    assert process.stdout.readline() == "ready\n"
    TO_A_GROUP[to](process.pid, number)
    assert process.stdout.readline() == "first\n"
    time.sleep(0.1)  # longer than what means the same one
    process.send_signal(number)
    assert process.communicate(timeout=PATIENCE)[0] == "2\n"
    assert process.returncode == 0


def test_the_witness_of_signals_ends_with_the_launcher(start):
    process = start(["sh", "-c", "echo $$; exec sleep 60"])
    command = int(process.stdout.readline())
    def members():
        return [int(path.name) for path in pathlib.Path("/proc").iterdir() if path.name.isdigit() and group_of(path.name) == process.pid]
    wait_for(lambda: len(members()) == 3, "the witness")  # it is started after the command
    group = members()
    process.kill()
    process.wait(timeout=PATIENCE)
    wait_for(lambda: all(group_of(pid) is None or state_of(pid) in "ZX" for pid in group if pid != command), "the end of the witness")
    os.kill(command, signal.SIGKILL)


def group_of(pid):
    try:
        return os.getpgid(int(pid))
    except ProcessLookupError:
        return None


def test_a_signal_that_the_command_does_not_expect_ends_both(start):
    process = start(["sh", "-c", "echo ready; exec sleep 60"])
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    process.wait(timeout=PATIENCE)
    assert process.returncode == -signal.SIGTERM


# "sent": each with its value, none is dropped.
QUEUED = """
    import ctypes, os, signal, sys
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN + 3})
    print(os.getppid(), flush=True)
    for _ in range(3):
        # struct siginfo_t: si_value lies at 24
        info = (ctypes.c_int * 32)()
        ctypes.CDLL(None).sigwaitinfo((ctypes.c_ulong * 16)(1 << (signal.SIGRTMIN + 2)), info)
        print(info[6], flush=True)
    """


def test_a_queued_signal_keeps_its_value_and_its_order(start, program):
    process = start([PYTHON, program(textwrap.dedent(QUEUED))])
    assert int(process.stdout.readline()) == process.pid
    libc = ctypes.CDLL(None)
    for value in (7, 8, 9):
        assert libc.sigqueue(process.pid, signal.SIGRTMIN + 3, ctypes.c_void_p(value)) == 0
    assert process.communicate(timeout=PATIENCE)[0] == "7\n8\n9\n" and process.returncode == 0


@contextlib.contextmanager
def held_back(launcher_pid):
    """Waits until the launcher has handled the signal, so that a second one cannot merge with the first."""
    os.kill(launcher_pid, signal.SIGSTOP)
    wait_for(lambda: state_of(launcher_pid) == "T", "the stop")
    yield
    os.kill(launcher_pid, signal.SIGCONT)


def test_a_signal_of_the_command_to_its_own_group_is_not_sent_back(start, program):
    script = COUNTS_SIGNALS.replace("while not seen:", "sys.stdin.readline(); import os; os.killpg(0, signal.SIGUSR1)\n    while not seen:")
    process = start([PYTHON, program(textwrap.dedent(script)), int(signal.SIGUSR1)], stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    with held_back(process.pid):
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "first\n"
    assert process.communicate(timeout=PATIENCE)[0] == "%d\n" % signal.SIGUSR1


class Terminal:
    """A program on a terminal of its own, of which it is the foreground group."""

    def __init__(self, command, cwd, env=None):
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):  # as a terminal's, whoever started the tests
                signal.signal(number, signal.SIG_DFL)
            os.chdir(cwd)
            os.execvpe(command[0], list(map(str, command)), clean_environment(env))
        self.seen = ""

    def type(self, text):
        os.write(self.end, text.encode())

    def states(self):
        """Of each process of the session: its command, what it waits for in the kernel, and its signals."""
        told = ("Name", "State", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.getsid(int(path.name)) == self.pid:
                    lines = [line for line in (path / "status").read_text().splitlines() if line.startswith(told)]
                    yield " ".join([path.name, (path / "wchan").read_text(), *lines])

    def read_until(self, pattern, timeout=PATIENCE):
        """Reads up to and including the pattern; the next call goes on behind it."""
        deadline = time.monotonic() + timeout
        while not (match := re.search(pattern, self.seen)):
            assert time.monotonic() < deadline, "%r is not in %r\n%s" % (pattern, self.seen, "\n".join(self.states()))
            time.sleep(0.01)
            is_open = self.read()
            assert is_open or re.search(pattern, self.seen), "%r is not in %r" % (pattern, self.seen)
        before, self.seen = self.seen[:match.end()], self.seen[match.end():]
        return before

    def read(self):
        """What is there so far; False: nothing more will come."""
        os.set_blocking(self.end, False)
        try:
            while True:
                self.seen += os.read(self.end, 4096).decode("utf-8", "replace").replace("\r\n", "\n")
        except BlockingIOError:
            return True
        except OSError:  # all that held it are gone
            return False

    def wait(self):
        """Reads meanwhile: a full terminal holds the program up."""
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.read()
            time.sleep(0.01)
        self.read()
        return os.waitstatus_to_exitcode(ended[1])


@pytest.fixture
def terminal(tmp_path):
    terminals = []

    def start(*command, **more):
        terminals.append(Terminal(command, tmp_path, **more))
        return terminals[-1]
    yield start
    for one in terminals:
        os.close(one.end)  # hangs up
        try:
            os.kill(one.pid, signal.SIGKILL)
            os.waitpid(one.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def test_ctrl_c_is_delivered_once(terminal, launcher, program, tmp_path):
    screen = terminal(launcher, "run", "-o", tmp_path / "run", PYTHON, program(textwrap.dedent(COUNTS_SIGNALS)), "2")
    screen.read_until("ready\n")
    with held_back(screen.pid):
        screen.type("\x03")
        assert screen.read_until("first\n") == "^Cfirst\n"
    assert screen.read_until(r"[2 ]+\n") == "2\n" and screen.wait() == 0
    assert (tmp_path / "run" / "summary.txt").exists()


# Sleeps are short: if a signal comes just before a sleep, Python handles it only after the sleep.
WAITS = """
    import time
    print("ready", flush=True)
    while True: time.sleep(0.05)
    """


def test_ctrl_c_at_a_program_that_does_not_expect_it_ends_both_and_the_trace_is_there(terminal, launcher, program, tmp_path):
    screen = terminal(launcher, "run", "-o", tmp_path / "run", PYTHON, program(textwrap.dedent(WAITS)))
    screen.read_until("ready")
    screen.type("\x03")
    screen.read_until("KeyboardInterrupt")
    assert screen.wait() == -signal.SIGINT
    assert list((tmp_path / "run").glob("trace.json.gz"))


STOPS = """
    import os, select, signal, sys, time
    if sys.argv[1] == "by itself":  # as an editor does, which restores the screen first
        def stop(number, frame):
            os.kill(os.getpid(), signal.SIGSTOP)
        signal.signal(signal.SIGTSTP, stop)
    print("ready", flush=True)
    # A signal just before a read that blocks would be handled after it.
    while not select.select([sys.stdin], [], [], 0.05)[0]: pass
    line = sys.stdin.readline()
    print("got " + line.upper(), flush=True)
    """


@pytest.mark.parametrize("way", ["by the kernel", "by itself"])
def test_ctrl_z_stops_both_and_fg_continues_both(terminal, launcher, program, tmp_path, way):
    shell = terminal("bash", "--norc", "--noprofile", "-i", env={"PS1": "prompt> "})
    shell.read_until("prompt> ")
    shell.type("%s run -o %s %s %s '%s'\n" % (launcher, tmp_path / "run", PYTHON, program(textwrap.dedent(STOPS)), way))
    shell.read_until("ready\n")
    shell.type("\x1a")
    shell.read_until("Stopped")
    shell.read_until("prompt> ")
    shell.type("fg\n")
    shell.read_until("torchprof run|%s run" % launcher)
    shell.type("words\n")
    shell.read_until("got WORDS")
    shell.read_until("prompt> ")
    shell.type("echo status $?\n")
    shell.read_until("status 0\n")


def test_a_command_that_stops_itself_gives_the_prompt_back(terminal, launcher, tmp_path):
    shell = terminal("bash", "--norc", "--noprofile", "-i", env={"PS1": "prompt> "})
    shell.read_until("prompt> ")
    shell.type("%s run -o %s sh -c 'kill -STOP $$; echo went on'\n" % (launcher, tmp_path / "run"))
    shell.read_until("Stopped")
    shell.read_until("prompt> ")
    shell.type("fg\n")
    shell.read_until("\nwent on\n")
    shell.read_until("prompt> ")
    shell.type("echo status $?\n")
    shell.read_until("status 0\n")


def test_a_stop_of_the_command_is_the_launchers_and_so_is_its_end(start):
    process = start(["sh", "-c", "echo $$; kill -STOP $$; echo went on"])
    child = int(process.stdout.readline())
    wait_for(lambda: state_of(process.pid) == "T", "the stop")
    os.kill(child, signal.SIGCONT)  # the command alone
    assert process.communicate(timeout=PATIENCE)[0] == "went on\n" and process.returncode == 0


def test_an_orphan_gets_the_parent_that_it_has_without_us(run_torchprof, run_bare, program, tmp_path):
    """A worker that waits until its parent is process 1 (or the process that collects orphans here) must end."""
    script = program(textwrap.dedent("""
        import os, time
        if os.fork() == 0:
            parent = os.getpid()
            if os.fork() == 0:
                while os.getppid() == parent: time.sleep(0.01)
                open("adopted", "w").write(str(os.getppid()))
            os._exit(0)
        os.wait()
        while not os.path.exists("adopted"): time.sleep(0.01)
        while not open("adopted").read(): time.sleep(0.01)
        """))
    run_bare([PYTHON, script])
    alone = (tmp_path / "adopted").read_text()
    (tmp_path / "adopted").unlink()
    assert run_torchprof([PYTHON, script]).status == 0
    assert (tmp_path / "adopted").read_text() == alone


def test_orphans_of_a_container_are_collected(launcher, mount_namespace, program, tmp_path):
    """There the launcher is process 1, to which they fall."""
    script = program("for i in 1 2 3; do sh -c 'sh -c \"exit 0\" & exit 0'; done\n"
                     "while grep -l '^State:.Z' /proc/[0-9]*/status; do sleep 0.05; done\necho none\n", "script.sh")
    done = subprocess.run([*mount_namespace, "--pid", "--fork", "--mount-proc", launcher, "run", "-q", "-o", tmp_path / "run", "bash", script],
                          cwd=tmp_path, capture_output=True, text=True, env=clean_environment(), timeout=PATIENCE)
    assert done.returncode == 0 and done.stdout.endswith("none\n"), done.stdout + done.stderr


@pytest.mark.parametrize("disk", ["that of the tests", "overlayfs"])
def test_the_spool_of_a_process_in_a_pid_namespace_of_its_own_stays(launcher, torchprof, mount_namespace, program, tmp_path, disk):
    program(textwrap.dedent("""
        import os, time
        def before(): pass
        def after(): pass
        before()
        open("begun", "w").close()
        while not os.path.exists("go"): time.sleep(0.02)
        after()
        open("over", "w").close()
        """), "x.py")
    overlay = """
        mkdir disk; mount -t tmpfs none disk; mkdir disk/lower disk/upper disk/work disk/all
        mount -t overlay none -o lowerdir=disk/lower,upperdir=disk/upper,workdir=disk/work disk/all || exit 98
        """ if disk == "overlayfs" else "mkdir -p disk/all"
    script = program(textwrap.dedent(overlay) + textwrap.dedent("""
        "$1" run -o disk/all/run sh -c 'unshare -pf --mount-proc "$0" x.py & while ! [ -e begun ]; do sleep 0.02; done' "$2" || exit 97
        ls disk/all/run/spool
        touch go
        while ! [ -e over ]; do sleep 0.02; done
        "$1" export -q disk/all/run 2>/dev/null || "$1" export disk/all/run
        "$1" report disk/all/run -t python -n 9999
        """), "script.sh")
    done = subprocess.run([*mount_namespace, "bash", script, launcher, PYTHON], cwd=tmp_path, capture_output=True, text=True,
                          env=clean_environment(), timeout=PATIENCE)
    assert done.returncode == 0 and ".spool\n" in done.stdout and "x.py(4): after" in done.stdout, done.stdout + done.stderr
    assert "of the command still running" in done.stderr


@pytest.mark.parametrize("comes", ["when the launcher has stopped", "before the launcher stops"])
def test_sigcont_to_the_launcher_continues_a_stopped_command(start, program, comes):
    process = start([PYTHON, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(1); print('done')"])
    child = int(process.stdout.readline())
    # The group is orphaned (nobody of its session watches it), so only SIGSTOP stops it and the launcher.
    if comes == "before the launcher stops":
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: state_of(process.pid) == "T", "the stop of the launcher")
    os.kill(child, signal.SIGSTOP)
    wait_for(lambda: state_of(child) == state_of(process.pid) == "T", "the stop of both")
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=PATIENCE)[0] == "done\n" and process.returncode == 0


def test_an_orphan_is_waited_for_and_traced(run_torchprof, program, tmp_path):
    script = program(textwrap.dedent("""
        import os, time
        if os.fork() == 0:
            launcher = os.getppid()
            if os.fork() == 0:
                time.sleep(0.5)
                def orphan_works(): pass
                orphan_works()
                open("orphan", "w").write(str(os.getpid()))
        """))
    run = run_torchprof([PYTHON, script])
    assert run.status == 0
    trace = run.trace_of((tmp_path / "orphan").read_text())
    assert any(name.endswith("): orphan_works") for name in trace.names("python_function"))
    assert json.loads(text_of(run.directory / "run.json"))["exported"]


def test_a_daemon_is_not_waited_for_and_its_spool_is_kept(run_torchprof, torchprof, check_trace, program, tmp_path):
    script = program(textwrap.dedent("""
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
            for fd in (0, 1, 2):
                os.close(fd)
            def daemon_works(): pass
            daemon_works()
            open("daemon", "w").write(str(os.getpid()))
            while not os.path.exists("stop"):
                time.sleep(0.05)
            def daemon_ends(): pass
            daemon_ends()
            open("stopped", "w").close()
            os._exit(0)
        os.wait()
        while not os.path.exists("daemon"):
            time.sleep(0.05)
        """))
    started = time.monotonic()
    run = run_torchprof([PYTHON, script])
    assert run.status == 0 and 3 < time.monotonic() - started  # the daemon does not end before it is told to
    pid = int(text_of(tmp_path / "daemon"))
    assert "torchprof: 1 process of the command still running; the trace holds what they did until now:\n" \
           "  process %d: %s" % (pid, PYTHON) in run.stderr
    said = json.loads(text_of(run.directory / "run.json"))
    (spool,) = (run.directory / "spool").glob("*.%d.*.spool" % pid)
    assert said["still_running"] == [{"pid": pid, "command": [PYTHON, str(script)], "spool": spool.name, "traced": True}]
    assert not said["exported"]
    assert any(name.endswith("): daemon_works") for name in run.trace_of(pid).names("python_function"))
    (tmp_path / "stop").touch()
    wait_for((tmp_path / "stopped").exists, "the daemon's end")
    wait_for(lambda: has_ended(pid), "the daemon's end")
    again = torchprof("export", run.directory)
    assert again.returncode == 0, again.stderr
    assert any(name.endswith("): daemon_ends") for name in check_trace(run.trace_of(pid)).names("python_function"))
    said = json.loads(text_of(run.directory / "run.json"))
    assert said["still_running"] == [] and said["exported"]


@pytest.mark.parametrize("threads", [0, 20])
def test_a_process_that_is_being_ended_is_not_called_running(start, torchprof, program, tmp_path, threads):
    """Much memory makes the way long from the command line that is empty to the files that are closed, which any thread may be the last to do."""
    script = program("THREADS = %d" % threads + textwrap.dedent("""
        import os, threading, time
        for _ in range(THREADS): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        memory = b"x" * (1 << 30)
        open("pid", "w").write(str(os.getpid()))
        time.sleep(600)
        """))
    process = start([PYTHON, script])
    pid = int(wait_for(lambda: text_of(tmp_path / "pid"), "the program's memory"))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not text_of(pathlib.Path("/proc/%d/cmdline" % pid)), "the end")
    again = torchprof("export", tmp_path / "run")
    assert again.returncode == 0, again.stderr
    said = json.loads(text_of(tmp_path / "run" / "run.json"))
    assert said["still_running"] == [] and said["exported"] and "still running" not in again.stderr


def test_a_torchprof_run_inside_another_is_part_of_it(run_torchprof, launcher, program, tmp_path):
    script = program("import os\nprint(os.environ['LD_PRELOAD'], os.environ['PYTHONPATH'], os.environ['TORCHPROF_PYTHON'])")
    run = run_torchprof([launcher, "run", "--python", "calls", PYTHON, script])
    library = launcher.parents[1] / "lib" / "torchprof"
    assert run.stdout == "%s %s calls\n" % (library / "libtorchprof.so", library / "python")
    assert len(run.trace_paths) == 1 and run.status == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.py", "run1"]


def test_a_torchprof_run_inside_another_may_have_a_directory_of_its_own(run_torchprof, launcher, program, tmp_path):
    inner = program("def inner(): pass\ninner()", "inner.py")
    run = run_torchprof([launcher, "run", "-o", tmp_path / "own", PYTHON, inner])
    assert run.status == 0 and run.trace_paths == []
    assert len(list((tmp_path / "own").glob("trace.json.gz"))) == 1


LONG = "def f(): pass\nfor _ in range(3000000): f()\nprint('over', flush=True)"


def test_the_second_ctrl_c_after_the_end_leaves_the_spool(start, torchprof, program, tmp_path):
    process = start([PYTHON, program(LONG)], "-w", "all", "--quiet")
    run = tmp_path / "run"
    wait_for(lambda: '"end"' in text_of(run / "run.json"), "the end of the command")
    process.send_signal(signal.SIGINT)
    assert "interrupt again" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 0
    assert stderr == ("torchprof: interrupted: the trace was not written; the raw records stay in %s; `torchprof export %s` writes the trace again\n" %
                      (run / "spool", run)), stderr
    assert [path.name for path in run.iterdir() if path.suffix != ".json"] == ["spool"]
    assert "f" in torchprof("report", run, "--tables", "python").stdout
    completed = torchprof("export", run)
    assert completed.returncode == 0 and len(list(run.glob("trace.json.gz"))) == 1, completed.stderr


def test_a_launcher_that_is_killed_while_it_writes_leaves_the_records_and_no_half_trace(start, torchprof, program, tmp_path):
    process = start([PYTHON, program(LONG)], "-w", "all")
    run = tmp_path / "run"
    wait_for(lambda: any(path.stat().st_size > 0 for path in run.glob("trace.json.gz.torchprof-*.tmp")), "half a trace")
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert not (run / "trace.json.gz").exists() and not json.loads(text_of(run / "run.json"))["exported"]
    assert list((run / "spool").glob("*.spool")) and "): f" in torchprof("report", run, "--tables", "python").stdout
    completed = torchprof("export", run, "--format", "table")
    assert completed.returncode == 0 and (run / "summary.txt").exists(), completed.stderr


def test_a_trace_that_no_viewer_opens_is_announced_before_it_is_written(start, program, tmp_path):
    process = start([PYTHON, program(LONG)], "-w", "all")
    said = process.stderr.readline()
    assert not (tmp_path / "run" / "trace.json.gz").exists()
    size = re.fullmatch(r"torchprof: the trace will be about ([\d.]+) MiB unpacked; chrome://tracing opens at most 512 MiB\. For a part: "
                        r"`torchprof export %s --steps A\.\.B -f kineto -o part\.json\.gz` \(or --time 1s\.\.2s\); for all, a fifth of the size: -f perfetto -o all\.perfetto-trace\n"
                        % re.escape(str(tmp_path / "run")), said)
    assert size, said
    assert process.communicate(timeout=PATIENCE) and process.returncode == 0
    with gzip.open(tmp_path / "run" / "trace.json.gz") as trace:
        unpacked = sum(map(len, iter(lambda: trace.read(1 << 20), b"")))
    assert abs(float(size[1]) * 2 ** 20 / unpacked - 1) < 0.25


LONGER = LONG.replace("3000000", "9000000")  # takes seconds to write on any machine


def test_long_work_after_the_end_shows_itself_on_a_terminal(terminal, launcher, program, tmp_path):
    screen = terminal(launcher, "run", "-w", "all", "-o", tmp_path / "run", PYTHON, program(LONGER))
    screen.read_until("over")
    screen.read_until("torchprof: writing the trace, [0-9.]+ [KM]iB so far")
    screen.type("\x03")
    screen.read_until("interrupt again")
    screen.type("\x03")  # the rest would take a minute
    assert screen.wait() == 0


def test_an_export_that_takes_long_shows_itself_on_a_terminal(terminal, launcher, program, tmp_path):
    profile(launcher, tmp_path / "run", [PYTHON, program(LONGER)], ["-w", "all", "--format", "none", "-q"])
    screen = terminal(launcher, "export", tmp_path / "run", "-f", "kineto", "-o", tmp_path / "trace.json.gz", env={"TERM": "xterm"})
    screen.read_until("torchprof: writing the trace, [0-9.]+ [KM]iB so far")
    assert screen.read_until("torchprof: .*: written\n").count("\r\033[K") >= 1  # the line is gone before
    assert screen.wait() == 0
