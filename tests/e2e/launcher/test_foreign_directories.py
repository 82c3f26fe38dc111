"""What lies in a directory that somebody names with -o and that torchprof did not make stays as it is: names, kinds, modes, owners,
contents, targets of links and times."""
import hashlib
import json
import os
import pathlib
import socket
import stat
import subprocess
import sys

import pytest

from conftest import PATIENCE, clean_environment

pytestmark = pytest.mark.once

PYTHON = sys.executable


def fingerprint(top):
    """Of everything in and below a directory, itself too. Times of access count for nothing."""
    found = {}
    for path in [top, *sorted(top.rglob("*"))]:
        status = path.lstat()
        content = b""
        if stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            content = os.readlink(path).encode()
        found[str(path.relative_to(top))] = (status.st_mode, status.st_uid, status.st_gid, status.st_ino, status.st_mtime_ns,
                                             status.st_ctime_ns, hashlib.sha256(content).hexdigest())
    return found


def write(*names, text="somebody's"):
    """Files, with the directories that they want."""
    def make(p, other):
        for name in names:
            (p / name).parent.mkdir(parents=True, exist_ok=True)
            (p / name).write_text(text)
    return make


def link(name, to):
    """`to`: "file" or "directory", something outside; "nowhere"; or a text."""
    def make(p, other):
        (p / name).parent.mkdir(parents=True, exist_ok=True)
        (p / name).symlink_to({"file": other / "file", "directory": other, "nowhere": p / "nowhere"}.get(to, to))
    return make


def directory(name, mode=0o755):
    def make(p, other):
        (p / name).mkdir(parents=True)
        (p / name).chmod(mode)
    return make


def fifo(name):
    def make(p, other):
        (p / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(p / name)
    return make


def unix_socket(name):
    def make(p, other):
        (p / name).parent.mkdir(parents=True, exist_ok=True)
        here = os.getcwd()
        os.chdir((p / name).parent)
        try:
            socket.socket(socket.AF_UNIX).bind(pathlib.Path(name).name)
        finally:
            os.chdir(here)
    return make


def hard_link(name):
    def make(p, other):
        (p / name).parent.mkdir(parents=True, exist_ok=True)
        (p / name).hardlink_to(other / "file")
    return make


def run_json(**more):
    return write("run.json", text=json.dumps({"torchprof": "0.1.0", "command": ["true"], "exported": True, "files": ["summary.txt"], **more}))


def both(*makers):
    def make(p, other):
        for maker in makers:
            maker(p, other)
    return make


def given_away(maker, name="."):
    """Another user's; of no consequence where the tests are not root's."""
    def make(p, other):
        maker(p, other)
        if os.geteuid() == 0:
            os.chown(p / name, 65534, 65534)
    return make


LAYOUTS = {
    "one file": write("notes.txt"),
    "a hidden file": write(".profile"),
    "an empty file": write("empty", text=""),
    "mail in a spool directory": write("spool/mail/inbox"),
    "a spool directory with files": write("spool/cron", "spool/at"),
    "an empty spool directory": directory("spool"),
    "a spool directory for everybody": directory("spool", 0o1777),
    "a spool directory that nobody may read": directory("spool", 0),
    "a file named spool": write("spool"),
    "a link named spool": link("spool", "directory"),
    "a dangling link named spool": link("spool", "nowhere"),
    "a link named spool to itself": link("spool", "spool"),
    "a FIFO named spool": fifo("spool"),
    "a spool by name alone": write("spool/host.12.34.spool"),
    "a spool of zeros, and mail": both(write("spool/host.12.34.spool", text="\0" * 64), write("spool/mail/inbox")),
    "a link named as a spool": both(directory("spool"), link("spool/host.12.34.spool", "file")),
    "a list named untraced": write("spool/untraced"),
    "a FIFO named untraced": fifo("spool/untraced"),
    "a file named used": write("spool/used"),
    "run.json of another program": write("run.json", text='{"experiment": 7}'),
    "run.json that is no JSON": write("run.json", text="hello"),
    "run.json that is empty": write("run.json", text=""),
    "run.json of ours from elsewhere": run_json(inode=1),
    "run.json of an older version": run_json(),
    "run.json of ours beside mail": both(run_json(inode=1), write("summary.txt", "spool/mail/inbox")),
    "run.json that lists what lies above": run_json(files=["../other/file", "/etc/passwd", "notes.txt"]),
    "run.json with another program's torchprof": write("run.json", text='{"torchprof": {"enabled": true}}'),
    "a link named run.json": link("run.json", "file"),
    "a dangling link named run.json": link("run.json", "nowhere"),
    "a FIFO named run.json": fifo("run.json"),
    "a socket named run.json": unix_socket("run.json"),
    "a directory named run.json": directory("run.json"),
    "a hard link named run.json": hard_link("run.json"),
    "a summary": write("summary.txt"),
    "a link named as a summary": link("summary.txt", "file"),
    "a dangling link named as a summary": link("summary.txt", "nowhere"),
    "a directory named as a summary": directory("summary.txt"),
    "a merged trace": write("merged.pt.trace.json.gz", "merged.perfetto-trace"),
    "a link named as a trace": link("merged.pt.trace.json.gz", "file"),
    "a FIFO named as a trace": fifo("merged.pt.trace.json.gz"),
    "a socket named as a trace": unix_socket("merged.pt.trace.json.gz"),
    "another profiler's traces": write("host_12.34.pt.trace.json", "host_12.34.pt.trace.json.gz"),
    "temporary files": write("summary.txt.tmp", "run.json.tmp", "merged.pt.trace.json.gz.tmp"),
    "a temporary file by our name": write("notes.torchprof-12.tmp"),
    "a tree": write("a/b/c/d", "a/e", "f/g"),
    "links to each other": both(link("one", "two"), link("two", "one")),
    "a link to a directory": link("there", "directory"),
    "a hard link": hard_link("same"),
    "a file that nobody may read": both(write("secret"), lambda p, other: (p / "secret").chmod(0)),
    "a directory that nobody may write": both(write("notes.txt"), lambda p, other: p.chmod(0o555)),
    "a directory for everybody": both(write("notes.txt"), lambda p, other: p.chmod(0o777)),
    "a directory as /tmp": both(write("notes.txt"), lambda p, other: p.chmod(0o1777)),
    "another user's directory": given_away(write("notes.txt")),
    "another user's file": given_away(write("notes.txt"), "notes.txt"),
    "another user's spool directory": given_away(write("spool/mail"), "spool"),
}


@pytest.fixture
def call(launcher, tmp_path):
    def start(*arguments):
        return subprocess.run([launcher, *map(str, arguments)], capture_output=True, text=True, env=clean_environment(), cwd=tmp_path,
                              timeout=PATIENCE)
    return start


@pytest.fixture(scope="module")
def finished(launcher, tmp_path_factory):
    """A run of one process with its spool."""
    place = tmp_path_factory.mktemp("finished")
    subprocess.run([launcher, "run", "-q", "-o", place / "run", "--", PYTHON, "-c", "def f(): pass\nf()"], check=True,
                   env=clean_environment(), cwd=place)
    return place / "run"


@pytest.fixture
def laid(tmp_path):
    def lay(name):
        place, other = tmp_path / "p", tmp_path / "other"
        for made in (place, other):
            made.mkdir()
        (other / "file").write_text("outside")
        LAYOUTS[name](place, other)
        return place
    return lay


def test_there_are_fifty_layouts():
    assert len(LAYOUTS) >= 50


@pytest.mark.parametrize("name", LAYOUTS)
def test_run_and_merge_refuse_what_is_somebody_elses(call, laid, finished, tmp_path, name):
    place = laid(name)
    before = fingerprint(tmp_path)
    for arguments in (["run", "-o", place, "/nonexistent"], ["run", "-o", place, "touch", "started"],
                      ["merge", finished, "-o", place, "--format", "table"]):
        done = call(*arguments)
        assert done.returncode == 125 and len(done.stderr.splitlines()) == 1, (arguments, done.stderr)
        assert done.stderr.startswith("torchprof: %s" % place), done.stderr
        assert fingerprint(tmp_path) == before, arguments


@pytest.mark.parametrize("name", LAYOUTS)
def test_export_and_a_page_leave_what_is_there(call, laid, finished, tmp_path, name):
    """New files come beside what is there; names that are taken stay."""
    place = laid(name)
    before = fingerprint(tmp_path)
    for arguments in (["export", finished, "-f", "kineto,table,perfetto", "-o", place], ["export", finished, "-f", "table", "-o", place],
                      ["report", finished, "--html", place / "page.html"]):
        call(*arguments)
        after = fingerprint(tmp_path)
        for path, was in before.items():  # of directories the times change where something new lies in them
            kept = slice(0, 4) if path in (".", "p", "other") else slice(None)
            assert path in after and after[path][kept] == was[kept], (arguments, path)


def test_mail_below_a_spool_directory_outlives_a_command_that_is_not_there(call, tmp_path):
    (tmp_path / "p" / "spool" / "mail").mkdir(parents=True)
    (tmp_path / "p" / "spool" / "mail" / "inbox").write_text("x")
    done = call("run", "-o", "p", "/nonexistent")
    assert done.stderr == "torchprof: %s/p: is not empty and not a run directory of torchprof; choose another with -o\n" % tmp_path
    assert (tmp_path / "p" / "spool" / "mail" / "inbox").read_text() == "x"


def test_the_directory_itself_may_be_no_link(call, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "p").symlink_to("real")
    done = call("run", "-o", "p", "true")
    assert (done.returncode, done.stderr) == (125, "torchprof: %s/p: is a symbolic link; choose another with -o\n" % tmp_path)
    assert not list((tmp_path / "real").iterdir())
    assert call("run", "-o", "p/below", "true").returncode == 0  # above it is the user's own way


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_an_empty_directory_is_taken_and_keeps_its_mode(call, tmp_path, mode):
    place = tmp_path / "p"
    place.mkdir()
    place.chmod(mode)
    assert call("run", "-o", place, PYTHON, "-c", "pass").returncode == 0
    assert stat.S_IMODE(place.stat().st_mode) == mode and stat.S_IMODE((place / "spool").stat().st_mode) == 0o700


def test_a_command_that_is_not_there_leaves_an_empty_directory_and_an_earlier_run_as_they_were(call, tmp_path):
    (tmp_path / "empty").mkdir(mode=0o750)
    call("run", "-o", "empty", "/nonexistent")
    assert not list((tmp_path / "empty").iterdir()) and stat.S_IMODE((tmp_path / "empty").stat().st_mode) == 0o750
    call("run", "-o", "run", PYTHON, "-c", "pass")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    done = call("run", "-o", "run", "/nonexistent")
    assert done.returncode == 127 and "replaced" not in done.stderr
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    call("run", "-o", "above/run", "/nonexistent")
    assert not (tmp_path / "above").exists()


def test_of_an_earlier_run_only_its_own_files_go(call, tmp_path):
    call("run", "-o", "run", "--format", "kineto-ranks", PYTHON, "-c", "pass")
    run = tmp_path / "run"
    (first,) = run.glob("process*.pt.trace.json.gz")
    (run / "notes.txt").write_text("mine")
    (run / "mine").mkdir(mode=0o750)
    first.unlink()
    first.mkdir()  # a name of ours, not a file of ours
    done = call("run", "-o", "run", "--discard", "--format", "table", PYTHON, "-c", "pass")
    assert done.returncode == 0 and "the earlier run in it was replaced" in done.stderr, done.stderr
    assert (run / "notes.txt").read_text() == "mine" and (run / "mine").is_dir() and first.is_dir() and not (run / "spool").exists()
    (run / "trace.json.gz").write_text("somebody's")
    done = call("run", "-o", "run", "true")
    assert (done.returncode, len(done.stderr.splitlines())) == (125, 1) and "is not of the earlier run" in done.stderr
    assert (run / "trace.json.gz").read_text() == "somebody's"


def test_what_the_command_itself_puts_into_the_directory_stays(call, tmp_path):
    done = call("run", "-o", "run", PYTHON, "-c", "open('run/summary.txt', 'w').write('the own')")
    assert done.returncode == 0 and "run/summary.txt: exists and is not this run's" in done.stderr
    assert (tmp_path / "run" / "summary.txt").read_text() == "the own"
    assert list((tmp_path / "run" / "spool").glob("*.spool")), "what could not be written is kept"


def test_a_mount_stays_mounted(launcher, mount_namespace, program, tmp_path):
    script = program("mount -t tmpfs none p/spool && echo mail > p/spool/inbox && \"$1\" run -o p /nonexistent; cat p/spool/inbox\n", "script.sh")
    (tmp_path / "p" / "spool").mkdir(parents=True)
    done = subprocess.run([*mount_namespace, "bash", script, launcher], cwd=tmp_path, capture_output=True, text=True, env=clean_environment())
    assert done.stdout == "mail\n" and "is not empty" in done.stderr


def test_the_library_alone_follows_no_link_named_spool(call, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "spool").symlink_to("../real")
    lines = call("run", "--dry-run", "-o", "p", "true").stdout.splitlines()
    done = subprocess.run(["env", *lines, PYTHON, "-c", "pass"], env=clean_environment(), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "Not a directory" in done.stderr and not list((tmp_path / "real").iterdir())
