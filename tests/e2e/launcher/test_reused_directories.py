"""A run directory that is used again, by two launchers at a time, or after a loss of power: nothing of any run is lost or mixed up."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from conftest import PATIENCE, clean_environment

pytestmark = pytest.mark.once

PYTHON = sys.executable
CALLS = "def work(): pass\nfor _ in range(%d): work()\n"


@pytest.fixture
def start(launcher, tmp_path):
    def begin(*arguments, around=()):
        return subprocess.Popen([*around, launcher, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=clean_environment(), cwd=tmp_path)
    return begin


@pytest.fixture
def call(start):
    def run(*arguments, around=()):
        process = start(*arguments, around=around)
        out, err = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)
    return run


def wait_for_the_end_of(pid):
    """Of an orphan: it closes the file that it records into after its standard output."""
    stat, deadline = pathlib.Path("/proc", pid, "stat"), time.monotonic() + PATIENCE
    with contextlib.suppress(OSError):
        while stat.read_text().rpartition(") ")[2][0] not in "ZX":
            assert time.monotonic() < deadline
            time.sleep(0.005)


def held_up(system_call, seconds, when="1..3"):
    """The launcher alone, not what it starts."""
    return ["strace", "-qq", "-o", "/dev/null", "-e", "trace=" + system_call, "-e", "inject=%s:delay_enter=%d:when=%s" % (
        system_call, seconds * 1_000_000, when)]


def test_the_lists_of_an_earlier_run_are_gone_before_the_next_command_starts(call, tmp_path):
    run, static = tmp_path / "run", tmp_path / "static"
    (tmp_path / "x.c").write_text("int main(void) { return 0; }")
    subprocess.run(["cc", "-static", "-o", static, tmp_path / "x.c"], check=True)
    first = call("run", "-o", "run", "--max-run-size", "2M", PYTHON, "-c", CALLS % 300_000)
    assert first.returncode == 0 and (run / "spool" / "used").exists() and "--max-run-size" in first.stderr, first.stderr
    # What removes the earlier files is slower than the whole command.
    second = call("run", "-o", "run", "--max-run-size", "2M", "sh", "-c", "%s; exec %s -c '%s'" % (static, PYTHON, CALLS % 100),
                  around=held_up("unlinkat", 1))
    assert second.returncode == 0 and "the earlier run in it was replaced" in second.stderr, second.stderr
    info = json.loads((run / "run.json").read_text())
    assert info["uncaptured"] == [] and [e["program"] for e in info["untraced"]] == [str(static)]
    assert "never captured" not in second.stderr and sum(p["events"]["python"] for p in info["processes"]) > 100
    assert sorted(p.name for p in (run / "spool").iterdir() if p.suffix != ".spool") == ["uncaptured", "untraced", "used"]


def test_a_command_that_is_not_there_leaves_the_lists_of_the_earlier_run(call, tmp_path):
    call("run", "-o", "run", "--max-run-size", "1G", "sh", "-c", "/sbin/ldconfig -V; %s -c 1" % PYTHON)
    spool = tmp_path / "run" / "spool"
    before = {path.name: path.read_bytes() for path in spool.iterdir()}
    assert {"untraced", "used"} < set(before)
    (tmp_path / "unreadable").write_text("#!/nonexistent/interpreter\n")
    (tmp_path / "unreadable").chmod(0o755)
    assert call("run", "-o", "run", "./unreadable").returncode in (126, 127)
    assert {path.name: path.read_bytes() for path in spool.iterdir()} == before


@pytest.mark.parametrize("is_there", [True, False])
def test_of_two_launchers_one_has_the_directory_and_the_other_leaves_it_alone(start, tmp_path, is_there):
    """Whatever the order of the two: the one that is delayed before it has the lock has not looked at anything yet."""
    run = tmp_path / "run"
    if is_there:
        run.mkdir()
    slow = start("run", "-o", "run", "--format", "none", PYTHON, "-c", "'slow'", around=held_up("flock", 2, "1"))
    fast = start("run", "-o", "run", "--format", "none", PYTHON, "-c", "'fast'")
    said = {"slow": slow.communicate(timeout=PATIENCE)[1], "fast": fast.communicate(timeout=PATIENCE)[1]}
    assert sorted((slow.returncode, fast.returncode)) == [0, 125], said
    winner, loser = ("slow", "fast") if slow.returncode == 0 else ("fast", "slow")
    assert "not exported" in said[loser] or "is writing into it" in said[loser], said
    assert json.loads((run / "run.json").read_text())["command"][-1] == "'%s'" % winner
    assert len(list((run / "spool").glob("*.spool"))) == 1


@pytest.mark.parametrize("left", ["", "{", '{"torchprof": "0.1.0", "files": [', '{"torchprof": 1e400}', "\0" * 4096], ids=["empty", "cut", "cut later", "no number", "zeros"])
def test_a_damaged_run_json_does_not_lock_the_records_away(call, tmp_path, left):
    run = tmp_path / "run"
    call("run", "-q", "-o", "run", "--format", "none", PYTHON, "-c", CALLS % 1000)
    (run / "run.json").write_text(left)
    report = call("report", "run", "--top", 10_000)
    assert report.returncode == 0 and "<string>(1): work" in report.stdout
    assert report.stderr == "torchprof: run/run.json: damaged, so its facts about the run are missing\n"
    assert call("export", "run", "--format", "kineto", "-o", tmp_path / "trace.json").returncode == 0 and (tmp_path / "trace.json").stat().st_size > 1000
    again = call("run", "-o", "run", "true")
    assert again.returncode == 125 and (run / "run.json").read_text() == left, "it is not known whose it is"
    (run / "run.json").unlink()
    assert "<string>(1): work" in call("report", "run", "--top", 10_000).stdout


@pytest.mark.parametrize("kind", ["somebody else's", "FIFO"])
def test_a_run_json_that_is_not_ours_names_the_way_out(call, tmp_path, kind):
    run = tmp_path / "run"
    call("run", "-q", "-o", "run", "--format", "none", PYTHON, "-c", CALLS % 1000)
    (run / "run.json").unlink()
    if kind == "FIFO":
        os.mkfifo(run / "run.json")
    else:
        (run / "run.json").write_text("[]")
    for command in "report", "export", "where":
        done = call(command, "run")
        assert (done.returncode, done.stderr) == (
            125, "torchprof: run: is not a run directory of torchprof: run.json is not ours; move it away to read the spool\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("place", ["theirs/a", "theirs/link/below"])
def test_root_writes_nothing_where_another_user_can_change_the_way(call, tmp_path, place):
    (tmp_path / "theirs" / "a").mkdir(parents=True)
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "theirs" / "link").symlink_to(tmp_path / "private")
    for path in "theirs", "theirs/a", "theirs/link":
        os.chown(tmp_path / path, 65534, 65534, follow_symlinks=False)
    done = call("run", "-o", place, "true")
    assert done.returncode == 125 and len(done.stderr.splitlines()) == 1 and "another user" in done.stderr, done.stderr
    assert not list((tmp_path / "private").iterdir()) and not list((tmp_path / "theirs" / "a").iterdir())


TRAIN = """import os, time, torch
from torch.profiler import record_function
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    for _ in range(8):
        with record_function("PART"):
            model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
"""
# Two ranks, as a launcher forks them: they agree on their windows in a file of the run.
RANKS = TRAIN + """
children = []
for rank in range(2):
    os.environ.update(MASTER_PORT="29500", RANK=str(rank), WORLD_SIZE="2")
    pid = os.fork()
    if pid == 0:
        train()
        os._exit(0)
    children.append(pid)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
"""
OPENS = "import os, subprocess; subprocess.run([os.environ['LAUNCHER'], 'ctl', str(os.getpid()), 'start'], check=True)\n" + CALLS % 100
SIGNALLED = """import os, signal, subprocess
os.kill(os.getpid(), signal.SIGUSR1)
while b"closed" in subprocess.check_output([os.environ["LAUNCHER"], "ctl", str(os.getpid()), "status"]): pass
""" + CALLS % 100
CHILDREN = "import os, subprocess, sys\nos.fork() or os._exit(0)\nos.wait()\nfor _ in range(2): subprocess.run([sys.executable, '-c', %r])\n" % (CALLS % 10)
KILLED = CALLS % 100 + "import os; os.kill(os.getpid(), 9)"
ALL_FORMATS = "kineto,kineto-ranks,perfetto,perfetto-ranks,chrome-legacy,json-stream,stacks,stacks-cuda,speedscope,pprof,memory-timeline,memory-timeline-raw," \
    "memory-timeline-html,memory-snapshot,sqlite,table"

# What a run is: its options, its program. With what it leaves in RUN/spool beside its spools, where that is a list of its own.
KINDS = {
    "auto": ([], CALLS % 100, set()),
    "ranks that have windows": ([], RANKS, {"windows"}),
    "all": (["-w", "all"], CALLS % 100, set()),
    "steps": (["-w", "steps=2..3"], TRAIN + "train()", set()),
    "a window again and again": (["-w", "every=3steps,for=1step"], TRAIN + "train()", set()),
    "a range": (["-w", "range=PART"], TRAIN + "train()", set()),
    "a window of time": (["-w", "after=0s"], CALLS % 100, set()),
    "a window by hand": (["-w", "manual"], OPENS, set()),
    "a window by signal": (["-w", "signal=USR1"], SIGNALLED, set()),
    "children": ([], CHILDREN, set()),
    "programs that cannot be traced": ([], "import os; os.system('/sbin/ldconfig -V')", {"untraced"}),
    "no room": (["--max-run-size", "1M"], CALLS % 300_000, {"used"}),
    "the last part": (["--keep", "last", "--max-size", "1M"], CALLS % 100_000, set()),
    "killed": ([], KILLED, set()),
    "C calls and native stacks": (["--python", "calls", "--native", "on"], CALLS % 100, set()),
    "every format": (["--format", ALL_FORMATS], CALLS % 100, set()),
    "every format, of ranks": (["--format", ALL_FORMATS], RANKS, {"windows"}),
    "without its records": (["--discard"], CALLS % 100, set()),
}


def content(run):
    return {path.relative_to(run): (path.lstat().st_mtime_ns, path.lstat().st_ino, path.read_bytes()) for path in run.rglob("*") if path.is_file()}


def test_each_kind_of_run_is_replaced_by_the_next_and_by_no_command_that_fails(call, launcher, tmp_path, monkeypatch):
    """Each kind finds what the one before it has left, and the first what the last has; between them come commands that record nothing, and some that
    do before they fail: they are there, and so is the last run that did not fail."""
    monkeypatch.setenv("LAUNCHER", str(launcher))
    monkeypatch.setenv("BROWSER", "true")
    run = tmp_path / "run"
    for number, name in enumerate([*KINDS, *list(KINDS)[:2]]):
        options, program, lists = KINDS[name]
        done = call("run", "-o", "run", *options, PYTHON, "-c", program)
        assert done.returncode == (-9 if name == "killed" else 0), (name, done.stderr)
        assert ("the earlier run in it was replaced" in done.stderr) == (number > 0 and name != "killed"), (name, done.stderr)
        info = json.loads((run / "run.json").read_text())
        kept = {"last-good-run"} if name == "killed" else set()
        assert info["command"][-1] == program and {p.name for p in run.iterdir()} - {"spool"} == {"run.json", *info["files"], *kept}, name
        left = [p.name for p in run.glob("spool/*")]
        pids = {str(p["pid"]) for p in info["processes"]}
        assert {n.split(".")[-3] for n in left if n.endswith(".spool")} == (set() if name == "without its records" else pids), name
        assert lists <= {n.split(".")[0] for n in left} and info["exported"], (name, left)
        assert call("report", "run", "--open").returncode == 0 and (run / "report.html").exists(), name
        before = content(run)
        for failing, said in ((["./nothing"], "cannot start"), ([PYTHON, "-u", "nothing.py"], "there is no nothing.py"),
                              (["false"], "nothing was recorded, so the earlier run in %s stays" % run)):
            done = call("run", "-o", "run", "-w", "manual", *failing)
            assert done.returncode != 0 and said in done.stderr, (name, failing, done.stderr)
            assert content(run) == before and sorted(tmp_path.iterdir()) == [run], (name, failing)
        if name not in ("auto", "ranks that have windows", "without its records", "killed"):
            continue
        good = content(run / "last-good-run") if name == "killed" else before
        for _ in range(2 if number == 0 else 1):
            done = call("run", "-o", "run", PYTHON, "-c", CALLS % 37 + "raise SystemExit(3)")
            assert done.returncode == 3 and "%s, and the run before it in %s/last-good-run" % (run, run) in done.stderr, (name, done.stderr)
            assert content(run / "last-good-run") == good and json.loads((run / "run.json").read_text())["exit_status"] == 3, name
        assert call("report", run / "last-good-run").returncode == 0, name
        before = content(run)
        call("run", "-o", "run", "false")
        assert content(run) == before, name


def test_where_no_run_was_good_a_failing_one_is_replaced(call, tmp_path):
    for count in (10, 20):
        assert call("run", "-o", "run", PYTHON, "-c", CALLS % count + "raise SystemExit(3)").returncode == 3
        assert {p.name for p in (tmp_path / "run").iterdir()} == {"run.json", "spool", "summary.txt", "trace.json.gz"}


def test_what_is_not_ours_is_no_good_run_and_takes_no_place_of_one(call, tmp_path):
    run = tmp_path / "run"
    call("run", "-o", "run", PYTHON, "-c", CALLS % 100)
    good = content(run)
    (run / "last-good-run").mkdir()
    (run / "last-good-run" / "theirs").write_text("theirs")
    for _ in range(2):
        done = call("run", "-o", "run", PYTHON, "-c", CALLS % 10 + "raise SystemExit(3)")
        assert "earlier-run: cannot be moved to %s/last-good-run" % run in done.stderr, done.stderr
        assert content(run / "earlier-run") == good and (run / "last-good-run" / "theirs").read_text() == "theirs"


def test_a_merge_is_replaced_by_a_merge(call, tmp_path):
    for name in "ab":
        call("run", "-o", name, PYTHON, "-c", CALLS % 100)
    for _ in range(2):
        done = call("merge", "a", "b", "-o", "both")
        assert done.returncode == 0 and len(list((tmp_path / "both" / "spool").glob("*.spool"))) == 2, done.stderr
    before = content(tmp_path / "both")
    call("run", "-o", "c", "-w", "manual", PYTHON, "-c", "pass")
    done = call("merge", "c", "-o", "both")
    assert done.returncode == 125 and "have recorded nothing" in done.stderr and content(tmp_path / "both") == before


@pytest.mark.parametrize("moment", ["before it has recorded anything", "before the command starts", "while it is set aside", "later"])
def test_a_launcher_that_is_killed_loses_no_earlier_run(call, tmp_path, moment):
    run = tmp_path / "run"
    call("run", "-o", "run", PYTHON, "-c", CALLS % 1000)
    before = content(run)
    (tmp_path / "kill.py").write_text((CALLS % 100 if moment == "later" else "") + "import os; print(os.getpid()); os.kill(os.getppid(), 9)")
    system_call = {"before the command starts": "pipe2:signal=KILL:when=1", "while it is set aside": "renameat2:signal=KILL:when=2"}.get(moment)
    killed = call("run", "-o", "run", "-w", "all" if moment == "later" else "manual", PYTHON, "kill.py",
                  around=["strace", "-qq", "-o", "/dev/null", "-e", "inject=" + system_call] if system_call else ())
    for pid in killed.stdout.split():
        wait_for_the_end_of(pid)
    if moment == "later":
        assert call("export", "run").returncode == 0 and "<string>(1): work" not in call("report", "run", "--top", 10_000).stdout
        assert call("run", "-o", "run", PYTHON, "-c", CALLS % 10).returncode == 0
        assert not (run / "earlier-run").exists()
        return
    if moment != "while it is set aside":
        assert "<string>(1): work" in call("report", run / "earlier-run", "--top", 10_000).stdout
    assert call("run", "-o", "run", "./nothing").returncode == 127
    assert content(run) == before and sorted(p.name for p in run.iterdir()) == ["run.json", "spool", "summary.txt", "trace.json.gz"]
