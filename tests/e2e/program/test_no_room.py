"""A file system that has no more room, at a quota or because it writes changes to another place, found when a chunk is wanted or at a store
into one: one line, the program goes on, what was recorded is kept."""
import gzip
import json
import re
import shutil
import subprocess
import sys

import pytest

from conftest import SUPPORT, clean_environment

pytestmark = pytest.mark.once

PYTHON = sys.executable
# A subvolume of btrfs for 8 MiB, in a directory; then a run in it and its export to where there is room.
ON_BTRFS = """
set -e
dir=$1 torchprof=$2; shift 2
{ truncate -s 128M "$dir/image"; mkfs.btrfs -q "$dir/image"; mkdir "$dir/disk"; mount -o loop "$dir/image" "$dir/disk"; } >&2 || exit 99
btrfs quota enable "$dir/disk"; btrfs subvolume create "$dir/disk/s" >&2; btrfs qgroup limit 8M "$dir/disk/s"
status=0; "$torchprof" run --quiet -o "$dir/disk/s/run" --format none -- "$@" || status=$?
rm -f "$dir/disk/s/fill"
"$torchprof" export "$dir/disk/s/run" --format kineto -o "$dir/out.json" >&2
exit $status
"""
CALLS = """
def f(n): return n + 1
def runs(times):
    n = 0
    for _ in range(times): n = f(n)
    return n
"""
UNTIL_THE_QUOTA = CALLS + "print(runs(2000000))"
# After its pages have been written to the disk, each store into one needs new room for the page.
FULL_LATER = CALLS + """
import glob, os, sys
def written():
    for path in glob.glob(sys.argv[1] + "/run/spool/*.spool"): os.fsync(os.open(path, os.O_RDWR))
n = runs(1000)
fill = os.open(sys.argv[1] + "/fill", os.O_WRONLY | os.O_CREAT)
try:
    while True: os.write(fill, os.urandom(4096))
except OSError as error: print(error.strerror)
os.fsync(fill)
for _ in range(20):
    written()
    n += runs(1000)
print(n)
"""
CASES = {
    "a chunk is wanted": (UNTIL_THE_QUOTA, "2000000\n",
                            "cannot grow the spool: (Disk quota exceeded|No space left on device); capture stops here, what was recorded is kept"),
    "a page is written again": (FULL_LATER, "Disk quota exceeded\n21000\n", "no room for what is written to the spool: capture stops here"),
}


def counted(trace, name):
    return sum(n for called, n in trace.names("python_function").items() if called.endswith("): " + name))


@pytest.mark.parametrize("case", CASES)
def test_a_quota_of_btrfs_is_a_line_and_the_program_goes_on(launcher, mount_namespace, check_trace, program, tmp_path, case):
    text, printed, line = CASES[case]
    if not shutil.which("mkfs.btrfs"):
        pytest.skip("mkfs.btrfs is missing (btrfs-progs)")
    done = subprocess.run([*mount_namespace, "bash", "-c", ON_BTRFS, "-", tmp_path, launcher, PYTHON, program(text), tmp_path / "disk" / "s"],
                          capture_output=True, text=True, env=clean_environment())
    if done.returncode == 99:
        pytest.skip("no btrfs can be mounted here: " + done.stderr)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    assert [bool(re.search(line, said)) for said in done.stderr.splitlines() if "capture stops" in said] == [True], done.stderr
    assert 1000 <= counted(check_trace(tmp_path / "out.json"), "f") < (2000000 if text == UNTIL_THE_QUOTA else 21000)


# A store into a file that is shorter by now fails as well, on every file system.
CUT = CALLS + """
import faulthandler, glob, mmap, os, sys, tempfile
def own_fault():
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        memory = mmap.mmap(file.fileno(), 4096)
        file.truncate(0)
        memory[0]
if sys.argv[2:] == ["faulthandler"]: faulthandler.enable()
n = runs(100000)
for path in glob.glob(sys.argv[1] + "/spool/*.spool"): os.truncate(path, os.path.getsize(path) // 2)
print(n + runs(100000), flush=True)
if sys.argv[2:]: own_fault()
"""


@pytest.fixture
def elsewhere(tmp_path):
    library = tmp_path / "no_room.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library, SUPPORT / "no_room.c"], check=True)
    return {"LD_PRELOAD": library}


@pytest.mark.parametrize("also", ["", "dies of its own fault", "faulthandler"])
def test_a_store_that_fails_ends_the_capture_alone(python, run_torchprof, run_bare, elsewhere, program, tmp_path, also):
    """And a SIGBUS of the program's own is what it is without us."""
    command = [python.path, program(CUT), tmp_path / "run", *filter(None, [also])]
    bare = run_bare(command, env=elsewhere)
    run = run_torchprof(command, env=elsewhere, options=["--quiet"], directory=tmp_path / "run")
    assert (run.status, run.stdout_bytes) == (bare.returncode, bare.stdout), run.stderr
    assert run.status == (-7 if also else 0) and run.stdout == "200000\n"
    ours = [line for line in run.stderr.splitlines() if line.startswith("torchprof: ")]
    assert sum("no room for what is written to the spool: capture stops here" in line for line in ours) == 1, run.stderr
    assert [line for line in run.stderr.splitlines() if line not in ours and "0x" not in line] == [
        line for line in bare.stderr.decode().splitlines() if "0x" not in line]


# A process that fills what there is, and those that come after it: forked by it, and started anew.
LATER = """
import json, os, subprocess, sys
""" + CALLS + """
if sys.argv[1:]:
    runs(1000)
    sys.exit()
runs(400000)
pids = []
for _ in range(2):
    pids.append(os.fork())
    if pids[-1] == 0:
        runs(1000)
        if os.fork() == 0:
            runs(1000)
            os._exit(0)
        os.wait()
        os._exit(0)
    os.waitpid(pids[-1], 0)
quiet = subprocess.run(["true"])
new = [subprocess.Popen([sys.executable, __file__, "new"]) for _ in range(2)]
for each in new: each.wait()
print(json.dumps([os.getpid(), pids, [each.pid for each in new]]))
"""
# Without looks at threads: where they are the last to want a chunk, others leave room that is enough for a short process.
ON_TMPFS = """
set -e
mkdir "$1/disk"; mount -t tmpfs -o size="$3" none "$1/disk"
dir=$1 torchprof=$2; shift 3
"$torchprof" run --sample off -o "$dir/disk/run" --format none -- "$@"
cp -r "$dir/disk/run" "$dir/run"
"$torchprof" export "$dir/run" --format kineto,table
"""


def cut_and_missing(directory):
    info = json.loads((directory / "run.json").read_text())
    return {process["pid"]: process["cut_short"] for process in info["processes"] if "cut_short" in process}, info["uncaptured"]


def test_what_was_cut_short_and_who_was_never_captured_is_listed(run_torchprof, program):
    """By --max-size: those that the full process forks are not captured, those that are started anew have room of their own."""
    run = run_torchprof([PYTHON, program(LATER)], options=["--max-size", "1M"])
    main, forked, new = json.loads(run.stdout)
    cut, missing = cut_and_missing(run.directory)
    assert list(cut) == [main] and 0 < cut[main]["captured_seconds"] < cut[main]["of_seconds"] and "--max-size" in cut[main]["reason"]
    assert [process["pid"] for process in missing if process["parent_pid"] == main] == forked and len(missing) == 4
    assert {process["parent_pid"] for process in missing} == {main, *forked} and all("its parent's capture had ended (--max-size was reached)" in process["reason"] for process in missing)
    summary = (run.directory / "summary.txt").read_text()
    assert re.search(r"process %d: captured until \S+ m?s of \S+ m?s \(--max-size was reached\); all that followed is missing" % main, summary) and "event lost" not in summary
    assert all("process %d, started by %d: never captured: its parent's capture had ended" % (pid, main) in summary for pid in forked)
    about = json.loads(run.merged_path.read_bytes() if run.merged_path.suffix == ".json" else gzip.decompress(run.merged_path.read_bytes()))
    assert len(about["torchprof"]["uncaptured"]) == 4 and [p["cut_short"]["reason"] for p in about["torchprof"]["processes"] if "cut_short" in p] == [cut[main]["reason"]]
    assert any(event["name"] == "process_labels" and "captured until" in event["args"]["labels"] for event in about["traceEvents"])


@pytest.mark.parametrize("pages", [0, 4, 20, 40])
def test_on_a_full_disk_those_that_come_later_are_listed(launcher, mount_namespace, program, tmp_path, pages):
    """However much room is left for them: each is captured to its end, or a line names it."""
    command = [*mount_namespace, "bash", "-c", ON_TMPFS, "-", tmp_path, launcher, "%dk" % (4096 + 4 * pages), PYTHON, program(LATER)]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment())
    assert done.returncode == 0, done.stderr
    main, forked, new = json.loads(done.stdout)
    cut, missing = cut_and_missing(tmp_path / "run")
    assert 0 < cut[main]["captured_seconds"] < cut[main]["of_seconds"] and "disk is full" in cut[main]["reason"]
    assert [process["pid"] for process in missing if process["parent_pid"] == main and "its parent's capture" in process["reason"]] == forked
    no_spool = [process["pid"] for process in missing if "no spool could be made (No space left on device)" in process["reason"]]
    whole = [process["pid"] for process in json.loads((tmp_path / "run" / "run.json").read_text())["processes"] if "cut_short" not in process]
    assert sorted(no_spool + whole + [pid for pid in cut if pid != main]) == sorted(new)
    summary = (tmp_path / "run" / "summary.txt").read_text()
    for pid in set(new) - set(whole):
        said = "captured until" if pid in cut and cut[pid]["captured_seconds"] else "never captured"
        assert re.search("process %d(, started by %d)?: %s[: ]" % (pid, main, said), summary), summary


def test_a_full_run_names_those_of_which_there_is_nothing(run_torchprof, program):
    run = run_torchprof([PYTHON, program(LATER)], options=["--max-run-size", "1M"])
    main, forked, new = json.loads(run.stdout)
    cut, missing = cut_and_missing(run.directory)
    assert set(cut) == {main, *new} and [process["pid"] for process in missing if process["parent_pid"] == main] == forked
    summary = (run.directory / "summary.txt").read_text()
    assert all("process %d: never captured (--max-run-size was reached)" % pid in summary for pid in new) and "event lost" not in summary
