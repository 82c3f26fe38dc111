"""`torchprof attach`: programs that the process starts meanwhile belong to the run, and nobody sees why; NVTX that is first called then is heard."""
import json
import os
import pathlib
import signal
import subprocess
import textwrap

import pytest

from conftest import PATIENCE, ROOT, clean_environment

# Starts what it is told to, in the way that it is told, and says what that has printed: a line of JSON each.
STARTING = textwrap.dedent("""
    import ctypes, json, os, subprocess, sys, time
    def through(start):
        read, write = os.pipe()
        saved = os.dup(1)
        os.dup2(write, 1)
        start()
        os.dup2(saved, 1)
        os.close(write)
        os.close(saved)
        with open(read) as file: return file.read()
    def execs(command):
        pid = os.fork()
        if pid == 0: os.execve(command[0], command, {})
        os.waitpid(pid, 0)
    WAYS = {
        "subprocess": lambda command: subprocess.run(command, capture_output=True, text=True).stdout,
        "an environment of its own": lambda command: subprocess.run(command, capture_output=True, text=True, env={"ONLY": "this"}).stdout,
        "a copy": lambda command: subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), close_fds=False).stdout,
        "posix_spawn": lambda command: through(lambda: os.waitpid(os.posix_spawn(command[0], command, os.environ), 0)),
        "exec": lambda command: through(lambda: execs(command)),
        "system": lambda command: through(lambda: os.system(" ".join("'%s'" % word for word in command))),
        "popen": lambda command: os.popen(" ".join("'%s'" % word for word in command)).read(),
    }
    names = lambda text: sorted(line for line in text.split("\\n") if line)
    def environments():
        entry, out = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ"), []
        while entry[len(out)]: out.append(entry[len(out)].decode())
        return {"python": dict(os.environ), "c": sorted(out)}
    print("ready", flush=True)
    for line in sys.stdin:
        way, command = json.loads(line)
        print(json.dumps(environments() if way == "environments" else WAYS[way](command)), flush=True)
""")
WAYS = ["subprocess", "an environment of its own", "a copy", "posix_spawn", "exec", "system", "popen"]
ENVIRONMENT = 'import os; print(sorted(name for name in os.environ if "TORCHPROF" in name or name in ("LD_PRELOAD", "NVTX_INJECTION64_PATH")))'


class Program:
    def __init__(self, command, **more):
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean_environment(), **more)
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, way, command=()):
        self.process.stdin.write(json.dumps([way, list(map(str, command))]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def start(tmp_path):
    started = []

    def run(command):
        started.append(Program(command, cwd=tmp_path))
        return started[-1]
    yield run
    for each in started:
        each.end()


@pytest.fixture
def attached(launcher, tmp_path):
    """attached(PID, DIRECTORY) begins to record; what comes back ends that and gives the launcher's stderr."""
    begun = []

    def attach(pid, directory, *options):
        process = subprocess.Popen([launcher, "attach", str(pid), "-w", "all", "-o", directory, *options], stderr=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, text=True, env=clean_environment())
        begun.append(process)
        first = process.stderr.readline()
        assert "attached to process %d" % pid in first, first + process.stderr.read()

        def end():
            process.send_signal(signal.SIGINT)
            err = process.communicate(timeout=PATIENCE)[1]
            assert process.returncode == 0, err
            return err
        return end
    yield attach
    for process in begun:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_what_is_started_meanwhile_is_recorded_and_nothing_that_is_started_later(python, start, attached, load_trace, program, tmp_path):
    parent = start([python.path, program(STARTING)])
    before, alone = parent.ask("environments"), {way: parent.ask(way, [python.path, "-c", ENVIRONMENT]) for way in WAYS}
    for turn in ("first", "second"):  # an attach after the first finds the process as it was
        end = attached(parent.process.pid, tmp_path / turn)
        # The program itself sees nothing, but for the one variable that NVTX reads, and that in C alone.
        meanwhile = parent.ask("environments")
        assert meanwhile["python"] == before["python"]
        assert [entry.partition("=")[0] for entry in meanwhile["c"] if entry not in before["c"]] == ["NVTX_INJECTION64_PATH"]
        functions = {way: "of_%s" % way.replace(" ", "_") for way in WAYS}
        for way, name in functions.items():
            assert parent.ask(way, [python.path, "-c", "def %s(): print(7)\n%s()" % (name, name)]) == "7\n", way
        err = end()
        assert "started programs" not in err and "%d processes" % (2 + len(WAYS)) in err, err  # itself, and the child that becomes another program
        trace = load_trace(tmp_path / turn / "trace.json.gz")
        for way, name in functions.items():
            assert len(trace.named("<string>(1): " + name, "python_function")) == 1, way
        # Afterwards.
        spools = sorted((tmp_path / turn / "spool").iterdir())
        assert parent.ask("environments") == before
        assert {way: parent.ask(way, [python.path, "-c", ENVIRONMENT]) for way in WAYS} == alone
        assert sorted((tmp_path / turn / "spool").iterdir()) == spools


@pytest.mark.once
def test_a_variable_that_the_program_sets_meanwhile_is_the_programs(torch_python, start, attached, program, tmp_path):
    script = STARTING.replace("print(json.dumps(environments()", "os.environ.update(dict([command]) if command else {}); print(json.dumps(environments()")
    parent = start([torch_python, program(script)])
    end = attached(parent.process.pid, tmp_path / "run")
    parent.ask("environments", ["OTHER", "1"])
    parent.ask("environments", ["NVTX_INJECTION64_PATH", "/none.so"])
    end()
    after = parent.ask("environments")
    assert "OTHER=1" in after["c"] and "NVTX_INJECTION64_PATH=/none.so" in after["c"]


@pytest.mark.once
def test_a_started_program_that_goes_on_is_left_with_the_process(torch_python, start, attached, load_trace, program, tmp_path):
    # One like it, which starts programs in its turn and passes on what they print.
    child = textwrap.dedent("""
        class Child:
            def ask(self, *what):
                if not hasattr(self, "process"):
                    self.process = subprocess.Popen([sys.executable, sys.argv[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                    self.process.stdout.readline()
                self.process.stdin.write(json.dumps(what) + "\\n")
                self.process.stdin.flush()
                return json.loads(self.process.stdout.readline())
        child = Child()
        WAYS["its child"] = lambda command: child.ask("subprocess", command)
        print("ready", flush=True)""")
    parent = start([torch_python, program(STARTING.replace('print("ready", flush=True)', child))])
    end = attached(parent.process.pid, tmp_path / "run")

    def through_child(code):
        return parent.ask("its child", [torch_python, "-c", code])
    assert through_child("def during(): print(1)\nduring()") == "1\n"
    assert "3 processes" in end()
    spools = sorted((tmp_path / "run" / "spool").iterdir())
    sizes = [spool.stat().st_size for spool in spools]
    assert through_child("def later(): print(2)\nlater()") == "2\n"
    threads = through_child("import os; print(len(os.listdir('/proc/%d/task' % os.getppid())))")
    assert threads == "1\n", "the child's thread of ours is there"
    assert sorted((tmp_path / "run" / "spool").iterdir()) == spools and [spool.stat().st_size for spool in spools] == sizes
    names = load_trace(tmp_path / "run" / "trace.json.gz").names("python_function")
    assert "<string>(1): during" in names and "<string>(1): later" not in names


@pytest.mark.once
def test_nvtx_that_is_first_called_meanwhile_is_heard(torch_python, start, attached, load_trace, program, tmp_path):
    sources = ROOT / "tests" / "nvtx"
    libraries = []
    for name in ("early", "late"):
        libraries.append(tmp_path / ("lib%s.so" % name))
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-DOWN_CLIENT", "-o", libraries[-1], sources / "library.c", "-ldl", "-lpthread"], check=True)
    # Whoever has called it before has heard that there is no tool.
    parent = start([torch_python, program("""
import ctypes, json, sys
libraries = [ctypes.CDLL(path) for path in sys.argv[1:]]
libraries[0].push(b"before")
print("ready", flush=True)
for line in sys.stdin:
    for library, name in zip(libraries, (b"early", b"late")): library.push(name); library.pop()
    print(0, flush=True)
"""), *libraries])
    for turn in ("first", "second"):
        end = attached(parent.process.pid, tmp_path / turn)
        parent.ask("")
        end()
        trace = load_trace(tmp_path / turn / "trace.json.gz")
        assert {e["name"] for e in trace.spans("user_annotation") if "NVTX domain" in e["args"]} == {"late"}
        parent.ask("")


@pytest.mark.once
def test_a_run_within_it_is_its_own(torch_python, start, attached, launcher, load_trace, program, tmp_path):
    parent = start([torch_python, program(STARTING)])
    end = attached(parent.process.pid, tmp_path / "outer")
    inner = [launcher, "run", "-q", "-o", tmp_path / "inner", "--", torch_python, "-c", "def within(): print(3)\nwithin()"]
    assert parent.ask("subprocess", inner) == "3\n"
    end()
    assert load_trace(tmp_path / "inner" / "trace.json.gz").named("<string>(1): within", "python_function")
    assert not load_trace(tmp_path / "outer" / "trace.json.gz").named("<string>(1): within", "python_function")
