"""Where something runs out, or somebody else could look in: the program goes on, what was recorded is kept, one line says what happened."""
import gzip
import json
import os
import pathlib
import re
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest

from conftest import clean_environment, profile
from test_no_room import CALLS

pytestmark = pytest.mark.once

PYTHON = sys.executable


def own_lines(stderr):
    return [line for line in stderr.splitlines() if line.startswith("torchprof: ")]


def counted(trace, name):
    return sum(n for called, n in trace.names("python_function").items() if called.endswith("): " + name))


LIMITED_FILES = """
    import os, resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
    os.execv(%r, [%r, "-c", %r])
    """
TAKES_ALL = """
import os, subprocess
def f(n): return n + 1
def take():
    taken = []
    try:
        while True: taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error: return taken, error.strerror
def count(n=0):
    for _ in range(50000): n = f(n)
    return n
f(0)
taken, why = take()
print(taken, why, count())
child = os.fork()
if child == 0:
    print(count(), flush=True)
    os._exit(0)
print(os.waitpid(-1, 0) == (child, 0))
try: print(os.waitpid(-1, 0))
except ChildProcessError as error: print(error)
os.close(taken.pop())
print(len(os.listdir("/proc/self/task")) <= 2)  # one is ours (--sample)
"""


def test_with_20_files_a_program_gets_all_of_them_and_loses_no_event(python, run_torchprof, run_bare, program):
    """No descriptor of ours stays open. Even if none is free for a moment, calls at that time are recorded."""
    command = [python.path, program(textwrap.dedent(LIMITED_FILES) % (python.path, python.path, TAKES_ALL))]
    bare, run = run_bare(command), run_torchprof(command)
    assert (run.status, run.stdout) == (0, bare.stdout.decode()), run.stderr
    assert "Too many open files" in run.stdout and "lost" not in run.stderr, run.stderr
    assert sum(counted(trace, "f") for trace in run.traces()) == 1 + 2 * 50000


def test_ten_thousand_short_threads_lose_nothing_and_take_little_room(run_torchprof, program):
    text = """
        import _thread, time
        done = []
        def short(): done.append(1)
        for n in range(10000):
            while n - len(done) > 50: time.sleep(0.0001)
            _thread.start_new_thread(short, ())
        while len(done) < 10000: time.sleep(0.001)
        """
    run = run_torchprof([PYTHON, program(textwrap.dedent(text))])
    assert run.status == 0 and "lost" not in run.stderr, run.stderr
    assert counted(run.trace(), "short") == 10000
    spool, = (run.directory / "spool").glob("*.spool")
    assert spool.stat().st_size < 10000 * 8192


def test_512_threads_at_once_lose_nothing(run_torchprof, check_trace, program):
    text = """
        import threading
        threading.stack_size(256 * 1024)
        barrier = threading.Barrier(513)
        def at_once():
            barrier.wait()
            inner()
        def inner(): pass
        threads = [threading.Thread(target=at_once) for _ in range(512)]
        for thread in threads: thread.start()
        barrier.wait()
        for thread in threads: thread.join()
        """
    run = run_torchprof([PYTHON, program(textwrap.dedent(text))])
    assert run.status == 0 and "lost" not in run.stderr, run.stderr
    trace = check_trace(run.trace())
    spans = [e for e in trace.spans("python_function") if e["name"].endswith(": inner")]
    assert len(spans) == len({e["tid"] for e in spans}) == 512


def test_a_tree_of_200_children_is_one_run(run_torchprof, check_trace, program):
    text = """
        import os
        def child(n): return n
        for n in range(200):
            if os.fork() == 0:
                child(n)
                os._exit(0)
        for n in range(200): assert os.wait()[1] == 0
        """
    run = run_torchprof([PYTHON, program(textwrap.dedent(text))])
    assert run.status == 0 and len(run.trace_paths) == 201, run.stderr
    assert counted(check_trace(run.merged_path, merged=True), "child") == 200


def test_a_file_system_without_fallocate_loses_nothing(run_torchprof, check_trace, program, tmp_path):
    source = "#include <errno.h>\nint fallocate64(int f, int m, long o, long n) { errno = EOPNOTSUPP; return -1; }\n"
    (tmp_path / "x.c").write_text(source + source[source.index("int"):].replace("64", ""))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "x.so", tmp_path / "x.c"], check=True)
    run = run_torchprof([PYTHON, program("def f(): pass\nfor _ in range(50000): f()")], env={"LD_PRELOAD": tmp_path / "x.so"})
    assert run.status == 0 and counted(check_trace(run.trace()), "f") == 50000, run.stderr


def test_the_output_may_lie_on_a_tmpfs(run_torchprof, check_trace, program):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        run = run_torchprof([PYTHON, program("def f(): pass\nfor _ in range(20000): f()")], directory=pathlib.Path(memory) / "run")
        assert run.status == 0 and counted(check_trace(run.trace()), "f") == 20000, run.stderr


LIMITED = "import resource, sys" + CALLS + """runs(100)
%s
print(runs(300000))
"""
NO_MORE = {
    "address space": ("with open('/proc/self/statm') as file: pages = int(file.read().split()[0])\n"
                      "resource.setrlimit(resource.RLIMIT_AS, (pages * 4096, -1))", "Cannot allocate memory"),
    "file size": ("resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, -1))", "the limit of file sizes, ulimit -f"),
}


@pytest.mark.parametrize("what", NO_MORE)
def test_a_limit_that_is_reached_is_a_line_and_the_program_goes_on(python, run_torchprof, check_trace, program, what):
    statement, line = NO_MORE[what]
    run = run_torchprof([python.path, program(LIMITED % statement)])
    assert (run.status, run.stdout) == (0, "300000\n"), run.stderr
    told = [text for text in own_lines(run.stderr) if "capture stops" in text]
    assert len(told) == 1 and line in told[0], run.stderr
    assert 100 <= counted(check_trace(run.trace()), "f") < 300100


def test_a_small_file_size_is_named_everywhere_and_in_its_unit(run_torchprof, program):
    run = run_torchprof([PYTHON, program(LIMITED % "resource.setrlimit(resource.RLIMIT_FSIZE, (300000, -1))")])
    assert (run.status, run.stdout) == (0, "300000\n"), run.stderr
    assert "ulimit -f (292 KiB)" in run.stderr and "max-size" not in run.stderr, run.stderr
    process, = json.loads((run.directory / "run.json").read_text())["processes"]
    assert process["cut_short"]["reason"] == "the limit of file sizes was reached (ulimit -f)"
    assert "(ulimit -f was reached)" in (run.directory / "summary.txt").read_text()


def with_no_file_size(command):
    """stderr is a pipe: a file of nothing takes no message."""
    return subprocess.run(["bash", "-c", 'ulimit -f 0; exec "$@"', "-", *map(str, command)], capture_output=True, text=True,
                          env=clean_environment())


def test_where_no_file_may_be_written_the_program_goes_on_without_us(torchprof, program, tmp_path):
    variables = torchprof("run", "-o", tmp_path / "run", "--dry-run", "true").stdout.splitlines()
    done = with_no_file_size(["env", *variables, PYTHON, program("print('goes on')")])
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done
    assert re.fullmatch("torchprof: cannot write to .*: File too large; nothing is recorded, the program goes on .*\n", done.stderr)


def test_where_no_file_may_be_written_the_launcher_says_so_before_the_command(launcher, tmp_path):
    done = with_no_file_size([launcher, "run", "-o", tmp_path / "run", "echo", "started"])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("torchprof: ") and "File too large" in done.stderr


def test_a_read_only_directory_is_a_line(launcher, torchprof, mount_namespace, program, tmp_path):
    (tmp_path / "disk").mkdir()
    variables = torchprof("run", "-o", tmp_path / "disk" / "run", "--dry-run", "true").stdout.splitlines()
    text = 'mount -t tmpfs -o ro none "$1" || exit 99; "$2" run -o "$1/run" echo started; echo $?; shift 2; env "$@"'
    done = subprocess.run([*mount_namespace, "bash", "-c", text, "-", tmp_path / "disk", launcher, *variables, PYTHON,
                           program("print('goes on')")], capture_output=True, text=True, env=clean_environment())
    assert (done.returncode, done.stdout) == (0, "125\ngoes on\n"), done
    before, alone = own_lines(done.stderr)
    assert "cannot make the run directory: Read-only file system" in before
    assert re.search("cannot write to .*: Read-only file system; nothing is recorded, the program goes on", alone)


def permissions(path):
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("way", ["torchprof run", "the library alone"])
def test_the_run_is_for_its_user_alone(launcher, program, tmp_path, way):
    run, command = tmp_path / "above" / "run", [PYTHON, program("pass")]
    options = ["run", "-o", run]
    if way == "the library alone":
        lines = subprocess.run([launcher, *options, "--dry-run", "true"], capture_output=True, text=True, env=clean_environment()).stdout
        start = ["env", *lines.splitlines()]
    else:
        start = [launcher, *options, "--"]
    subprocess.run([*start, *command], check=True, env=clean_environment(), capture_output=True, preexec_fn=lambda: os.umask(0))
    assert permissions(run) == permissions(run / "spool") == 0o700
    assert [permissions(file) for file in (run / "spool").glob("*.spool")] == [0o600]
    assert permissions(run.parent) == 0o777


def test_a_directory_that_others_may_write_to_is_refused_and_stays_as_it_is(launcher, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    run.chmod(0o777)
    done = subprocess.run([launcher, "run", "-o", run, "true"], capture_output=True, text=True, env=clean_environment())
    assert done.stderr == "torchprof: %s: other users may write to it; name a directory that does not exist yet, as -o %s/run\n" % (run, run)
    assert done.returncode == 125 and permissions(run) == 0o777 and not list(run.iterdir())


def as_nobody():
    os.setgid(65534)
    os.setuid(65534)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_directory_of_another_user_is_refused(public_tree):
    above = public_tree.parent / "like tmp"
    above.mkdir()
    above.chmod(0o1777)
    for name, owner, become, cause in (("root's", 0, as_nobody, "belongs to another user (uid 0)"),
                                       ("nobody's", 65534, None, "belongs to another user (uid 65534)")):
        run = above / name
        run.mkdir()
        run.chmod(0o777)
        os.chown(run, owner, owner)
        done = subprocess.run([public_tree / "bin" / "torchprof", "run", "-o", run, "echo", "started"], capture_output=True, text=True, cwd="/",
                              env=clean_environment(), preexec_fn=become)
        assert (done.returncode, done.stdout) == (125, ""), done.stderr
        assert done.stderr == "torchprof: %s: %s; name a directory that does not exist yet, as -o %s/run\n" % (run, cause, run)
        assert permissions(run) == 0o777 and not list(run.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_root_takes_a_directory_that_another_user_mounted(launcher, tmp_path):
    """As `docker run -v "$PWD/out:/out"` has it: nobody but root could have put it there."""
    run = tmp_path / "run"
    run.mkdir()
    run.chmod(0o755)
    os.chown(run, 65534, 65534)
    done = subprocess.run([launcher, "run", "-o", run, "true"], capture_output=True, text=True, env=clean_environment())
    assert done.returncode == 0 and permissions(run) == 0o755 and run.stat().st_uid == 65534, done.stderr


def test_an_export_writes_through_no_link_that_somebody_left(torchprof, run_torchprof, program, tmp_path):
    run = run_torchprof([PYTHON, program("pass")])
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "out.json.tmp").symlink_to(tmp_path / "theirs")
    done = torchprof("export", run.directory, "--format", "kineto", "-o", tmp_path / "out.json")
    assert done.returncode == 0 and (tmp_path / "theirs").read_text() == "theirs", done.stderr
    assert (tmp_path / "out.json").is_file() and not (tmp_path / "out.json").is_symlink()


@pytest.fixture
def public_tree(prefix):
    """A copy of the installed tree that every user can read."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # TMPDIR may be its user's alone
        os.chmod(directory, 0o755)
        yield pathlib.Path(shutil.copytree(prefix, pathlib.Path(directory) / "tree"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_process_of_another_user_is_not_lost_in_silence(public_tree, check_trace, tmp_path, program):
    """Forked, it has its file kept open before it changes; a program that it starts has nothing of ours, and a line says so."""
    env = {**dict.fromkeys(clean_environment()), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MINE": "/home/me/torchprof"}
    anew = ("import os; maps = open('/proc/self/maps').read(); print('libtorchprof' in maps,"
            " sorted(name for name in os.environ if name not in ('_', 'PWD', 'OLDPWD', 'SHLVL')))")
    text = """
        import os, subprocess, sys
        def f(n): return n + 1
        def other():
            os.setgid(65534); os.setuid(65534)
            n = 0
            for _ in range(50000): n = f(n)
            print(n, flush=True)
            os.system('%%s -c "%%s"' %% (sys.executable, ANEW))
            os.execv(sys.executable, [sys.executable, "-c", ANEW])
        ANEW = %r
        if os.fork() == 0: other()
        sys.exit(os.wait()[1])
        """ % anew
    run = profile(public_tree / "bin" / "torchprof", tmp_path / "run", [PYTHON, program(textwrap.dedent(text))], env=env)
    assert (run.status, run.stdout) == (0, "50000\nFalse ['LC_ALL', 'MINE', 'PATH', 'TORCHPROF_DISABLE']\nFalse ['LC_ALL', 'MINE', 'PATH']\n"), run.stderr
    assert sum(counted(check_trace(trace), "f") for trace in run.traces()) == 50000
    assert len(re.findall(r"torchprof: a process starts a program as another user: it is not profiled\n", run.stderr)) == 1


GOES_ELSEWHERE = {
    "seteuid": "os.seteuid(65534)",
    "setreuid": "os.setreuid(65534, 65534)",
    "setresuid": "os.setresuid(65534, 65534, 65534)",
    "chroot": "os.chroot(ELSEWHERE)",
    "mount": "call('mount', b'none', RUN, b'tmpfs', 0, None)",
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root or user")
@pytest.mark.parametrize("way", GOES_ELSEWHERE)
def test_a_program_that_cannot_reach_its_run_any_more_is_recorded_to_its_end(public_tree, check_trace, tmp_path, program, way):
    directory = tmp_path / "run"
    text = """
        import ctypes, os
        RUN, ELSEWHERE = %r, %r
        libc = ctypes.CDLL(None, use_errno=True)
        def call(name, *args):
            if getattr(libc, name)(*args) != 0: raise OSError(ctypes.get_errno(), name)
        def f(n): return n + 1
        f(0)
        %s
        n = 0
        for _ in range(50000): n = f(n)
        print(n)
        """ % (os.fsencode(directory), str(tmp_path), GOES_ELSEWHERE[way])
    prefix = ["unshare", "-m", "--propagation", "private"] if way == "mount" else []
    run = profile(public_tree / "bin" / "torchprof", directory, [*prefix, PYTHON, program(textwrap.dedent(text))])
    assert (run.status, run.stdout) == (0, "50000\n"), run.stderr
    assert counted(check_trace(run.trace()), "f") == 50001


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_another_user_commands_no_window(public_tree, tmp_path, program):
    """Root may, and the user of the program; whoever else gets no answer."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.chmod(place, 0o755)
        text = "import subprocess, sys; [print(subprocess.run([*as_user, sys.argv[1], 'ctl', str(os.getpid()), command], capture_output=True, text=True).stdout, end='', flush=True)"
        text += "\n for as_user in (['setpriv', '--reuid', '65534', '--clear-groups'], []) for command in ('start', 'status')]"
        path = pathlib.Path(place) / "program.py"
        path.write_text("import os\n" + text)
        launcher = public_tree / "bin" / "torchprof"
        run = profile(launcher, tmp_path / "run", [PYTHON, path, launcher], options=["-w", "manual"])
    lines = run.stdout.splitlines()
    assert [line.partition(": ")[2] for line in lines] == ["open, window 1", "open, window 1"], (run.stdout, run.stderr)


PLANTS = """
import os, subprocess, sys
def f(n): return n
spool, name = os.environ["TORCHPROF_OUTPUT"] + "/spool/", sys.argv[1]
if os.path.exists(spool + name): os.unlink(spool + name)
os.symlink(sys.argv[2], spool + name)
for n in range(200000): f(n)
print(subprocess.run([sys.argv[3]]).returncode)
"""


@pytest.mark.parametrize("name", ["used", "untraced"])
def test_a_link_in_the_place_of_a_file_of_the_run_is_not_followed(run_torchprof, program, tmp_path, name):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "x.c").write_text("int main(void) { return 3; }")
    subprocess.run(["cc", "-static", "-o", tmp_path / "static", tmp_path / "x.c"], check=True)
    run = run_torchprof([PYTHON, program(PLANTS), name, tmp_path / "victim", tmp_path / "static"], options=["--max-run-size", "100M"])
    assert (run.status, run.stdout) == (0, "3\n"), run.stderr
    assert (tmp_path / "victim").read_text() == "precious"


RUN_LIMIT = """
import os, signal, sys
def counts(n): return n + 1
def work(calls):
    total = 0
    for _ in range(calls): total = counts(total)
    return total
for _ in range(4):
    child = os.fork()
    if child == 0:
        work(60000)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
print(work(10), flush=True)
os.execv(sys.executable, [sys.executable, "-c", "def after(): pass\\nafter()"])
"""


def test_a_limit_for_the_whole_run_counts_dead_processes_too(run_torchprof, check_trace, program):
    run = run_torchprof([sys.executable, program(RUN_LIMIT)], options=["--max-run-size", "2M"])
    assert (run.status, run.stdout) == (0, "10\n")
    spools = list(run.directory.rglob("*.spool"))
    assert 1 << 20 < sum(path.stat().st_size for path in spools) <= (2 << 20) + 4096 * len(spools)
    processes = json.loads((run.directory / "run.json").read_text())["processes"]
    said = [process["cut_short"]["reason"] for process in processes if "cut_short" in process]
    cause = "the size limit of the run was reached (--max-run-size)"
    assert 0 < len(said) < len(processes) and set(said) == {cause} and not any(process["lost"] for process in processes)
    assert "(--max-run-size was reached)" in (run.directory / "summary.txt").read_text() and run.stderr.count("reached --max-run-size (2 MiB)") == 1
    check_trace(run.merged_path, merged=True)


WANTS_MORE = """
import os, sys, torch
with open(sys.argv[1] + "/cgroup.procs", "w") as group: group.write(str(os.getpid()))
held = []
for n in range(10000):
    held.append(torch.ones(1 << 20))
    os.write(1, b"%d\\n" % n)
"""


@pytest.mark.parametrize("inside", ["the program", "the launcher too"])
def test_killed_for_memory_by_the_kernel_it_loses_nothing(launcher, memory_limit, torch_python, run_bare, check_trace, program, tmp_path, inside):
    group, directory = memory_limit(512 << 20), tmp_path / "run"
    command = [torch_python, program(WANTS_MORE), group]
    bare = run_bare(command)
    enter = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', group] if inside == "the launcher too" else []
    done = subprocess.run([*enter, launcher, "run", "-o", directory, *command], capture_output=True, text=True, env=clean_environment())
    assert done.returncode == bare.returncode == -9, done.stderr
    printed = done.stdout.split()
    assert printed == [str(n) for n in range(len(printed))] and len(printed) > 10
    trace, = directory.glob("trace.json.gz")
    assert check_trace(trace).names("cpu_op")["aten::ones"] - len(printed) in (0, 1)
    assert json.loads((directory / "run.json").read_text())["oom_kills"] > 0
    assert re.search("torchprof: while the command ran, the kernel killed .* because memory ran out", done.stderr)


@pytest.mark.timed
@pytest.mark.slow
def test_a_trace_of_a_hundred_megabytes_is_read_in_a_gigabyte(launcher, tmp_path):
    event = '{"ph":"X","cat":"cpu_op","name":"aten::op_%d","pid":7,"tid":7,"ts":%d.125,"dur":3.5,"args":{"External id":%d,"Record function id":0,"Ev Idx":%d,"Input Dims":[[32,64],[64,64]]}}'
    block, count = 1000, 550_000
    with (tmp_path / "huge.json").open("w") as file:
        file.write('{"schemaVersion":1,"traceEvents":[\n')
        for first in range(0, count, block):
            file.write(",\n".join(event % (i % 50, 10 * i, i, i) for i in range(first, first + block)))
            file.write(",\n" if first + block < count else "]}")
    assert (tmp_path / "huge.json").stat().st_size > 100e6
    begin = time.monotonic()
    done = subprocess.run([launcher, "report", tmp_path / "huge.json", "--csv", "-t", "ops", "--top", "100"], capture_output=True, text=True,
                          env=clean_environment(), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)))
    assert done.returncode == 0, done.stderr
    assert len(re.findall("^.*aten::op_", done.stdout, re.M)) == 50 and str(count // 50) in done.stdout
    assert time.monotonic() - begin < 10


def test_without_threads_one_compressor_is_enough(launcher, tmp_path):
    """Where no thread can be started (a limit of processes), memory does not grow with what is compressed."""
    (tmp_path / "none.c").write_text("#include <errno.h>\nint pthread_create() { return EAGAIN; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "none.so", tmp_path / "none.c"], check=True)
    event = '{"ph":"X","cat":"cpu_op","name":"aten::op","pid":7,"tid":7,"ts":%d,"dur":3}'
    text = '{"traceEvents":[%s]}' % ",\n".join(event % i for i in range(500_000))
    (tmp_path / "x.json").write_text(text)
    done = subprocess.run([sys.executable, "-c", "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
                                                 "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)",
                           "env", "LD_PRELOAD=" + str(tmp_path / "none.so"), launcher, "export", tmp_path / "x.json", "--format", "kineto", "-o", tmp_path / "y.json.gz"],
                          capture_output=True, text=True, env=clean_environment(), check=True)
    assert gzip.decompress((tmp_path / "y.json.gz").read_bytes()) == text.encode()
    kib = int(done.stdout.split()[-1])
    assert kib < 22_000, kib
