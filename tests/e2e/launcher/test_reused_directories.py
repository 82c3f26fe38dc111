"""A run directory that is used again, by two launchers at a time, or after a loss of power: nothing of any run is lost or mixed up."""
import json
import os
import subprocess
import sys

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


def held_up(system_call, seconds, when="1..3"):
    """The launcher alone, not what it starts."""
    return ["strace", "-qq", "-o", "/dev/null", "-e", "trace=" + system_call, "-e", "inject=%s:delay_enter=%d:when=%s" % (
        system_call, seconds * 1_000_000, when)]


def test_the_lists_of_an_earlier_run_are_gone_before_the_next_command_starts(call, tmp_path):
    run = tmp_path / "run"
    first = call("run", "-o", "run", "--max-run-size", "2M", PYTHON, "-c", CALLS % 300_000)
    assert first.returncode == 0 and (run / "spool" / "used").exists() and "--max-run-size" in first.stderr, first.stderr
    # What removes the earlier files is slower than the whole command.
    second = call("run", "-o", "run", "--max-run-size", "2M", "sh", "-c", "/sbin/ldconfig -V; exec %s -c '%s'" % (PYTHON, CALLS % 100),
                  around=held_up("unlinkat", 1))
    assert second.returncode == 0 and "the earlier run in it was replaced" in second.stderr, second.stderr
    info = json.loads((run / "run.json").read_text())
    assert info["uncaptured"] == [] and [e["program"] for e in info["untraced"]] == ["/sbin/ldconfig"]
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
