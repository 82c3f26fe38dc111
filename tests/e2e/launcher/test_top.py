"""`torchprof top`: a job that runs is shown, second by second; keys, sizes of the terminal, and every way in which a job ends."""
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from conftest import PATIENCE, clean_environment

pytestmark = pytest.mark.once

PYTHON = sys.executable
TRAIN = """
import sys, time, torch
net = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
def unmistakable_step():
    net(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    time.sleep(0.005)
step = 0
while sys.argv[1:] != [str(step)]:
    unmistakable_step()
    step += 1
    if step == 100: print("ready\\n", end="", flush=True)
"""


@contextlib.contextmanager
def training(launcher, program, tmp_path, *options, command=None):
    """A job that has made 100 steps, in a session of its own."""
    line = [launcher, "run", "-q", "-o", tmp_path / "run", *options, "--", *(command or [PYTHON, program(TRAIN, "train.py")])]
    with subprocess.Popen(list(map(str, line)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path, env=clean_environment(),
                          start_new_session=True) as job:
        try:
            assert job.stdout.readline() == "ready\n"
            yield job
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)


class Terminal:
    """torchprof top in a terminal of its own; `screen` is the text of its latest picture."""

    def __init__(self, command, columns=100, rows=40, environment=()):
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            self.end = 0
            self.resize(columns, rows)  # here: the program may look at once
            os.execve(str(command[0]), [str(part) for part in command], clean_environment({"TERM": "xterm", "LC_ALL": "C.UTF-8", **dict(environment)}))
        self.output, self.status = "", None

    def resize(self, columns, rows):
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        if select.select([self.end], [], [], seconds)[0]:
            try:
                self.output += os.read(self.end, 65536).decode("utf-8", "replace")
            except OSError:  # the other end is closed
                return False
        return True

    @property
    def screen(self):
        return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", self.output.split("\x1b[J")[-2].split("\x1b[H")[-1]).replace("\r", "") if "\x1b[J" in self.output else ""

    def until(self, wanted):
        deadline = time.monotonic() + PATIENCE
        while not wanted(self.screen):
            assert self.read(1) and time.monotonic() < deadline, self.output[-3000:]
        return self.screen

    def press(self, keys):
        os.write(self.end, keys)

    def leave(self):
        """Its exit status, once all that it says has been read."""
        while self.read(60):
            pass
        os.close(self.end)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def is_restored(output):
    return output.index("\x1b[?1049h") < output.rindex("\x1b[?1049l") and output.rindex("\x1b[?25h") < output.rindex("\x1b[?1049l")


def test_a_pipe_gets_one_picture(launcher, torchprof, program, tmp_path):
    with training(launcher, program, tmp_path) as job:
        for arguments in ([tmp_path / "run"], [tmp_path / "run", "--once"]):
            done = torchprof("top", *arguments)
            assert done.returncode == 0 and "\x1b" not in done.stdout and done.stderr == ""
            for part in ("1 process\n", "steps  ", "/s  last ", "): unmistakable_step", "resident"):
                assert part in done.stdout, done.stdout
        pid = re.search(r"\nprocess (\d+) ", done.stdout)[1]
        assert "unmistakable_step" in torchprof("top", pid).stdout
        assert job.poll() is None


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_keys_leave_and_the_terminal_is_as_before(launcher, program, tmp_path, key):
    with training(launcher, program, tmp_path) as job:
        fresh, other = os.openpty()
        before = termios.tcgetattr(fresh)  # what a new terminal is like: `top` may have changed its own by now
        os.close(fresh), os.close(other)
        top = Terminal([launcher, "top", tmp_path / "run"])
        top.until(lambda screen: "unmistakable_step" in screen and "q quits" in screen)
        assert termios.tcgetattr(top.end) != before
        top.press(key)
        while "\x1b[?1049l" not in top.output:
            assert top.read(60)
        assert is_restored(top.output) and top.leave() == 0 and job.poll() is None


def test_w_opens_a_window(launcher, program, tmp_path):
    with training(launcher, program, tmp_path, "-w", "manual"):
        top = Terminal([launcher, "top", tmp_path / "run"], columns=160)
        screen = top.until(lambda screen: "no window so far (manual)" in screen)
        assert re.search(r"^steps +[\d.]+/s", screen, re.M), screen
        top.press(b"w")
        top.until(lambda screen: ": open, window 1" in screen and "by self time, window 1, open" in screen and "unmistakable_step" in screen)
        top.press(b"q")
        assert top.leave() == 0


def test_w_says_why_it_cannot(launcher, program, tmp_path):
    with training(launcher, program, tmp_path, "-w", "all"):
        top = Terminal([launcher, "top", tmp_path / "run"], columns=160)
        top.until(lambda screen: "unmistakable_step" in screen)
        top.press(b"w")
        top.until(lambda screen: "it does not listen" in screen)
        top.press(b"q")
        assert top.leave() == 0


def test_a_narrow_terminal_and_another_size(launcher, program, tmp_path):
    with training(launcher, program, tmp_path):
        top = Terminal([launcher, "top", tmp_path / "run"], columns=40, rows=12, environment={"NO_COLOR": "1"})
        screen = top.until(lambda screen: "steps" in screen and "Python functions by" in screen)
        assert max(len(line) for line in screen.splitlines()) <= 40 and len(screen.splitlines()) <= 12, screen
        assert not re.search(r"\x1b\[[1-9][0-9]*m", top.output)
        top.resize(120, 50)
        top.until(lambda screen: len(screen.splitlines()) > 20 and max(len(line) for line in screen.splitlines()) > 60)
        top.press(b"q")
        assert top.leave() == 0


@pytest.mark.parametrize("steps, killed", [("600", False), ("", True)])
def test_the_end_of_the_job_leaves_the_last_picture(launcher, program, tmp_path, steps, killed):
    with training(launcher, program, tmp_path, command=[PYTHON, program(TRAIN, "train.py"), *steps.split()]) as job:
        top = Terminal([launcher, "top", tmp_path / "run"])
        screen = top.until(lambda screen: "unmistakable_step" in screen)
        if killed:
            os.killpg(job.pid, signal.SIGKILL)
        assert top.leave() == 0
        last = top.output[top.output.rindex("\x1b[?1049l"):]
        assert "the job has ended" in last and "unmistakable_step" in last and screen, last


def test_four_processes_stand_side_by_side(launcher, torchprof, program, tmp_path):
    program(TRAIN.replace("sleep(0.005)", 'sleep(0.005 if __import__("os").environ["RANK"] != "2" else 0.05)'), "train.py")
    command = ["bash", "-c", "for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 %s train.py & done; wait" % PYTHON]
    with training(launcher, program, tmp_path, command=command) as job:
        for _ in range(3):
            assert job.stdout.readline() == "ready\n"
        shown = torchprof("top", tmp_path / "run").stdout
        assert "4 processes" in shown and [line.split()[1] for line in shown.splitlines() if line.startswith("rank ")] == ["0", "1", "2", "3"]
        assert [line.split()[1] for line in shown.splitlines() if "slowest" in line] == ["2"], shown


def test_a_rank_that_has_ended_stays_in_its_row_and_in_nothing_else(launcher, torchprof, program, tmp_path):
    program(TRAIN.replace("unmistakable_step", "step_of_rank_1"), "first.py")
    program(TRAIN, "train.py")
    command = ["bash", "-c", "export WORLD_SIZE=2; RANK=1 %s first.py 100 > /dev/null; RANK=0 exec %s train.py" % (PYTHON, PYTHON)]
    with training(launcher, program, tmp_path, command=command):
        shown = torchprof("top", tmp_path / "run").stdout
        rows = {line.split()[1]: line for line in shown.splitlines() if line.startswith("rank ")}
        assert rows.keys() == {"0", "1"} and "ended" in rows["1"] and "ended" not in rows["0"], shown
        assert "unmistakable_step" in shown and "step_of_rank_1" not in shown and "slowest" not in shown, shown


def started(spool):
    return int(spool.name.split(".")[-2])


def copies_of(spool, count):
    """As many processes have ended; their names come after all others."""
    host, _, start, end = spool.name.rsplit(".", 3)
    for i in range(count):
        (spool.parent / ("%s.9999%04d.%s.%s" % (host, i, start, end))).write_bytes(spool.read_bytes())


def test_workers_that_have_ended_are_forgotten_before_ranks(launcher, torchprof, program, tmp_path):
    program("def worker(): pass\nworker()", "worker.py")
    program(TRAIN, "train.py")
    command = ["bash", "-c", "export WORLD_SIZE=2; %s worker.py; RANK=1 %s train.py 100 > /dev/null; RANK=0 exec %s train.py" % (PYTHON, PYTHON, PYTHON)]
    with training(launcher, program, tmp_path, command=command):
        first, second, _ = sorted((tmp_path / "run" / "spool").glob("*.spool"), key=started)
        copies_of(first, 70)
        second.rename(second.with_name("a" + second.name))  # so that it comes first
        shown = torchprof("top", tmp_path / "run").stdout
        assert [line.split()[1] for line in shown.splitlines() if line.startswith("rank ")] == ["0", "1"], shown


def test_of_more_ranks_that_have_ended_than_fit_the_lowest_stay_and_the_rest_is_counted(launcher, torchprof, program, tmp_path):
    program(TRAIN, "train.py")
    command = ["bash", "-c", "export WORLD_SIZE=90; for r in 1 2; do RANK=$r %s train.py 100 > /dev/null; done; RANK=0 exec %s train.py" % (PYTHON, PYTHON)]
    with training(launcher, program, tmp_path, command=command):
        first, second, _ = sorted((tmp_path / "run" / "spool").glob("*.spool"), key=started)
        copies_of(second, 70)
        first.rename(first.with_name("a" + first.name))  # so that it comes first
        shown = torchprof("top", tmp_path / "run").stdout
        # Those that are kept; of so many a screen has the first ones.
        ranks = [line.split()[1] for line in shown.splitlines() if line.startswith("rank ")]
        assert ranks == ["0", "1", *["2"] * (len(ranks) - 2)] and "\n  and %d more\n" % (65 - len(ranks)) in shown, shown
        assert len(shown.splitlines()) <= 40
        assert ": 1 process, 8 ended ranks not listed\n" in shown, shown


def with_files(limit, *command):
    return subprocess.run(["bash", "-c", 'ulimit -n %d; exec "$@"' % limit, "bash", *map(str, command)], capture_output=True, text=True,
                          env=clean_environment(), timeout=PATIENCE)


def test_processes_that_have_ended_need_no_descriptors(launcher, program, tmp_path):
    program("def worker(): pass\nworker()", "worker.py")
    program(TRAIN, "train.py")
    with training(launcher, program, tmp_path, command=["bash", "-c", "%s worker.py; exec %s train.py" % (PYTHON, PYTHON)]):
        first, last = sorted((tmp_path / "run" / "spool").glob("*.spool"), key=started)
        copies_of(first, 150)
        last.rename(last.with_name("z" + last.name))  # so that it comes last
        shown = with_files(64, launcher, "top", tmp_path / "run")
        assert ": 1 process\n" in shown.stdout and "unmistakable_step" in shown.stdout, shown


def test_what_no_descriptor_is_left_for_is_said(launcher, torchprof, program, tmp_path):
    program(TRAIN, "train.py")
    command = ["bash", "-c", "for r in 0 1 2; do RANK=$r WORLD_SIZE=3 %s train.py & done; wait" % PYTHON]
    with training(launcher, program, tmp_path, command=command) as job:
        for _ in range(2):
            assert job.stdout.readline() == "ready\n"
        shown = with_files(34, launcher, "top", tmp_path / "run")
        assert ": 2 processes, 1 more not read (ulimit -n)\n" in shown.stdout, shown
        assert len([line for line in shown.stdout.splitlines() if line.startswith("rank ")]) == 2
        assert "3 processes\n" in torchprof("top", tmp_path / "run").stdout


def test_a_job_that_hangs_between_windows_says_since_when(launcher, program, tmp_path):
    hangs = TRAIN.replace('if step == 100: print("ready\\n", end="", flush=True)', 'if step == 400: print("ready\\n", end="", flush=True); time.sleep(1000)')
    assert hangs != TRAIN
    with training(launcher, program, tmp_path, "--budget-events", "4K", command=[PYTHON, program(hangs, "train.py")]):
        top = Terminal([launcher, "top", tmp_path / "run"])
        top.until(lambda screen: re.search(r"  none for \d+\.\d+ s", screen))
        top.press(b"q")
        assert top.leave() == 0


def test_recycled_chunks_are_no_harm(launcher, program, tmp_path):
    busy = TRAIN.replace("time.sleep(0.005)", "[len(str(i)) for i in map(lambda i: i, range(20000))]")
    with training(launcher, program, tmp_path, "--keep", "last", "--max-size", "1M", command=[PYTHON, program(busy, "train.py")]):
        top = Terminal([launcher, "top", tmp_path / "run"])
        for _ in range(4):
            top.output = ""
            top.until(lambda screen: "Python functions by self time" in screen and "train.py" in screen)
        top.press(b"q")
        assert top.leave() == 0


def test_what_cannot_be_shown_is_one_line(torchprof, run_torchprof, program, tmp_path):
    ended = run_torchprof([PYTHON, program("pass")], options=["--discard"])
    for arguments, line in ((["4194999"], "there is no process 4194999"), ([tmp_path / "no"], "No such file"),
                            (["--once"], "RUN|PID is required"), ([ended.directory], "its raw records are gone"), ([tmp_path, "--last", "x"], "is not a whole number")):
        done = torchprof("top", *arguments)
        assert done.returncode == 125 and line in done.stderr and done.stderr.count("\n") == 1, done
