"""What every end-to-end test starts from: the installed tree, a way to run it, and the traces that come out.

TORCHPROF_BUILD names the build directory (default: build/ in the root of the checkout). The tests use what `meson install`
makes of it, in a directory of their own, so that the tree is used where it was not configured to lie. TORCHPROF_INSTALLED names such a
tree that exists already: tests/roots/roots.py uses it where nothing was built.

Tests that need no torch take the fixture `python` and run once for each version of CPython from 3.10 on that is found here: on PATH, in /usr/bin,
/usr/local/bin and ~/.pyenv. Without --run-slow that is the newest and that of torch, and in python/ the oldest. Tests that need torch run under `torch_python`, the interpreter that runs pytest.

The marker `once` is for what neither depends on the version of torch nor on that of Python nor on libc: what we say, write and read, our own arithmetic of
windows, the simulated GPU without operators. .ci/run leaves these out in other Debians. What stays there: operators, memory, modules, stacks, what torch
says of GPUs, what torch.profiler says; calls, imports, threads and processes of Python; starting programs and ending them.

Which file of tests/e2e/ tries what; ROOM/test_FILE.py, and each file's first line says more:

    program    the program behaves as without us, however odd it is and whatever it runs out of: coexistence crash
               ends foreign late_library lifecycle limits manners no_room old_kernel other_roots
               python_module seccomp
    processes  all processes that the command starts are traced and told apart, on one clock: clocks distributed
               endings hosts interpreters torchrun tree workers
    python     Python calls, imports, lines, waits, stacks and collections: gc imports program_lines python python_lines
               sampler stacks_of_threads unknown_python waits
    torch      operators, modules, steps and collectives, against torch.profiler where it has them:
               against_torch_profiler collectives compare flops key_averages modules native operators ranges steps
               units unknown_torch
    memory     allocations, the peak, growth, and the formats of memory: memory memory_growth memory_snapshot
               memory_timeline python_memory
    gpu        CUPTI's records, simulated, and NVTX: cuda_torch gpu gpu_clock gpu_fields gpu_first_use gpu_hangs
               gpu_inductor gpu_lazy gpu_lifecycle gpu_modes gpu_record gpu_record_run gpu_shared gpu_tools
               gpu_trace nvtx nvtx_emit
    stacks     native stacks: native_compile native_debuginfod native_formats native_gdb native_python native_pythons
               native_random native_script native_stacks
    window     which part of the run is captured, and what steps are outside of it: asked_steps attach attach_starts auto
               busy_start every_step flight_recorder last_steps long_job step_use window
    files      what is written, and what is read: formats, tables, comparison, advice, CI: advice archives chosen_ranks ci
               dataset dataset_questions diff files_of_others formats gpu_tables hostile_files html html_accessible
               html_views kept_runs many_ranks merge operator_advice other_files planted real_gpu run_and_trace run_files
               versions
    launcher   the command line, run directories, the examples: armed browser collect commands completions examples
               foreign_directories guides launcher metrics pictures prometheus readme reused_directories said top where

tests/e2e/support/ has what several of them use: programs to be traced, readers of what we write, the simulated GPU's runs.
"""
import collections
import contextlib
import dataclasses
import functools
import gc
import importlib.util
import itertools
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

import emulated
import spread
import trace_rules

ROOT = pathlib.Path(__file__).resolve().parents[1]
SUBCOMMANDS = [name for name in re.findall(r'^    {"([a-z]+)", "', (ROOT / "launcher/subcommands/subcommands.cpp").read_text(), re.M) if name != "help"]
SUPPORT = ROOT / "tests" / "e2e" / "support"  # what several of the tests use: programs, modules, C
sys.path.insert(0, str(SUPPORT))


# Of the environment around the tests they and all that they start are given this alone: where programs, homes and temporary files lie, the way to the
# network, and what is told to pytest and to a compiler's cache. The next setting that some shell, editor or CI makes is none of theirs.
KEPT = re.compile(r"PATH|HOME|USER|LOGNAME|TMPDIR|XDG_CACHE_HOME|(?i:https?_proxy|no_proxy)|(PYTEST|CCACHE)_\w+")
GIVEN = {"LANG": "C.UTF-8",
         # The checkout may belong to somebody else than who tests it.
         "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
# What is said to the tests themselves: TORCHPROF_BUILD and the like. torchprof refuses TORCHPROF_ variables that it does not know, so these
# go by another name; pytest's workers find them by that one.
TOLD = re.compile(r"(?:TORCHPROF|TESTED)_(\w+)")


def set_surroundings():
    """Gives this process, and so its children, the same surroundings wherever the tests are started. What is started beside them is not up to us: no test may
    depend on how busy the machine is."""
    told = {"TESTED_" + match[1]: value for name, value in os.environ.items() if (match := TOLD.fullmatch(name)) and value}
    kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    # No script's first line and no LD_PRELOAD could have it.
    if not re.fullmatch(r"[\w./+@-]+", kept.get("TMPDIR", "/tmp")):
        del kept["TMPDIR"]
        tempfile.tempdir = None  # what pytest may have asked for by now
    os.environ.clear()
    os.environ.update({**kept, **told, **GIVEN})
    os.umask(0o022)
    for what, usual in ((resource.RLIMIT_NOFILE, 1024), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_STACK, 8 << 20)):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (usual if hard == resource.RLIM_INFINITY else min(usual, hard), hard))
    if not __debug__:
        raise pytest.UsageError("this Python ignores assert (-O, PYTHONOPTIMIZE): no test could fail")


def setting(name):
    """What TORCHPROF_NAME said when the tests were started, or None."""
    return os.environ.get("TESTED_" + name)


set_surroundings()
PATIENCE = 600  # seconds until what should have ended counts as hung: a busy machine takes its time
BUILD = pathlib.Path(setting("BUILD") or ROOT / "build").resolve()
INSTALLED = setting("INSTALLED")
EMULATED = setting("EMULATED")
TAIL_CALL_PYTHON = setting("TAIL_CALL_PYTHON")
# A trace is millions of objects that stay alive: collecting garbage among them again and again takes as long as reading them.
gc.set_threshold(1_000_000, 10, 100)
OTHER_CHECKER = ROOT.parent / "shared" / "tools" / "check_trace.py"


def found_once(ask):
    """A function whose answer, which JSON can hold, holds for this interpreter on this machine: pytest's workers know what was found before they began."""
    kept = "TESTED_" + ask.__name__.upper()

    @functools.lru_cache(None)
    def answer():
        by, found = json.loads(os.environ.get(kept, "[null, null]"))
        if by != sys.executable:
            found = ask()
            os.environ[kept] = json.dumps([sys.executable, found])
        return found
    return answer


@found_once
def what_torch_says():
    asked = subprocess.run([sys.executable, "-c", "import torch, json; print(json.dumps([torch.__version__, torch.profiler.kineto_available(), torch.version.cuda]))"],
                           capture_output=True, text=True, check=True)
    return json.loads(asked.stdout)


def torch_here():
    """((major, minor), has Kineto) of the torch that the tests run under."""
    version, has_kineto, _ = what_torch_says()
    return tuple(int(part) for part in version.split(".")[:2]), has_kineto


@dataclasses.dataclass
class Run:
    """One `torchprof run` that has ended."""
    status: int          # as subprocess has it: negative for a signal
    stdout_bytes: bytes
    stderr: str
    directory: pathlib.Path
    launcher: pathlib.Path

    @property
    def stdout(self):
        return self.stdout_bytes.decode("utf-8", "surrogateescape")

    def said_by_the_program(self):
        """The lines of stderr that are not ours. The summary, which comes last, has our name in its first line alone."""
        before = re.split(r"^torchprof: (?=\d+ process(?:es)?, |no process )", self.stderr, maxsplit=1, flags=re.M)[0]
        return [line for line in before.splitlines() if not line.startswith("torchprof: ")]

    @property
    def trace_paths(self):
        """The traces of single processes, in the order of their names: the run's own if it has one process, otherwise written anew."""
        whole = self.directory / "trace.json.gz"
        if not whole.exists():
            return []
        pids = [process["pid"] for process in json.loads((self.directory / "run.json").read_text())["processes"]]
        if len(pids) < 2:
            return [whole]
        apart = self.directory.with_name(self.directory.name + ".processes")
        shutil.rmtree(apart, ignore_errors=True)
        self.export("kineto-ranks", apart)
        if len(list(apart.iterdir())) < len(pids):  # those of ranks alone
            shutil.rmtree(apart)
            for pid in pids:
                self.export("kineto", apart / ("process%d.pt.trace.json.gz" % pid), "--process", pid)
        return sorted(apart.iterdir())

    def export(self, kind, to, *options):
        to.parent.mkdir(exist_ok=True)
        subprocess.run([self.launcher, "export", self.directory, "--format", kind, "-o", to, *map(str, options)], check=True, capture_output=True,
                       env=clean_environment())

    @property
    def merged_path(self):
        """The trace of a run of several processes."""
        path = self.directory / "trace.json.gz"
        assert len(json.loads((self.directory / "run.json").read_text())["processes"]) > 1, "one process alone"
        return path

    def traces(self):
        return [trace_rules.Trace(path) for path in self.trace_paths]

    def trace(self):
        """The trace of a run of one process."""
        paths = self.trace_paths
        assert len(paths) == 1, "one process was expected, not %s\n%s" % ([p.name for p in paths], self.stderr)
        return trace_rules.Trace(paths[0])

    def trace_of(self, pid):
        found = [t for t in self.traces() if t.pid == int(pid)]
        assert len(found) == 1, "process %s is not among %s\n%s" % (pid, [p.name for p in self.trace_paths], self.stderr)
        return found[0]


def free_port():
    """A port of 127.0.0.1 that nobody has now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def clean_environment(changes=None):
    """The environment for what is tested: without what is meant for the tests and their tools. A change to None takes a variable away."""
    env = {k: v for k, v in os.environ.items() if not re.match("(TORCHPROF|TESTED|PYTEST|GIT)_", k)}
    env["PYTHONHASHSEED"] = "0"
    for name, value in (changes or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = str(value)
    return env


@pytest.fixture(scope="session")
def prefix(tmp_path_factory):
    """The installed tree: bin/torchprof and lib/torchprof/."""
    if INSTALLED:
        return pathlib.Path(INSTALLED)
    destination = tmp_path_factory.mktemp("installed")
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", destination], check=True,
                   stdout=subprocess.DEVNULL)
    launchers = list(destination.rglob("bin/torchprof"))
    assert len(launchers) == 1, "meson install made %s" % launchers
    return launchers[0].parents[1]


@pytest.fixture(scope="session")
def launcher(prefix):
    return prefix / "bin" / "torchprof"


@pytest.fixture
def torchprof(launcher, tmp_path):
    """torchprof(ARG...) runs any subcommand; the text of stdout and stderr and the status come back."""
    def run(*args, env=None, cwd=tmp_path, **more):
        return subprocess.run([launcher, *map(str, args)], capture_output=True, text=True, env=clean_environment(env), cwd=cwd,
                              timeout=PATIENCE, **more)
    return run


def profile(launcher, directory, command, options=(), env=None, cwd=None, stdin=None, timeout=PATIENCE):
    """`torchprof run -o DIRECTORY OPTIONS -- COMMAND`"""
    done = subprocess.run([launcher, "run", "-o", directory, *map(str, options), "--", *map(str, command)], capture_output=True,
                          input=stdin, env=clean_environment(env), cwd=cwd or directory.parent, timeout=timeout)
    return Run(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"), directory, launcher)


@pytest.fixture
def run_torchprof(launcher, tmp_path):
    """run_torchprof(COMMAND, options=[...], ...) is profile() in a directory of the test's own; a Run comes back."""
    numbers = itertools.count(1)

    def run(command, directory=None, **more):
        return profile(launcher, pathlib.Path(directory or tmp_path / ("run%d" % next(numbers))), command, **more)
    return run


@pytest.fixture
def run_bare(tmp_path):
    """The same command without torchprof, to compare with."""
    def run(command, env=None, cwd=tmp_path, stdin=None):
        return subprocess.run(list(map(str, command)), capture_output=True, input=stdin, env=clean_environment(env), cwd=cwd,
                              timeout=PATIENCE)
    return run


@pytest.fixture
def load_trace():
    return trace_rules.Trace


@pytest.fixture
def check_trace():
    """Asserts that a trace breaks no rule of the format. Takes a path or a Trace; gives the Trace back. `imports`: inside of long ones, too.
    `expect`: the least number of events of a category."""
    def check(trace, merged=False, imports=False, expect={}):
        if not isinstance(trace, trace_rules.Trace):
            trace = trace_rules.Trace(trace)
        assert trace_rules.broken_rules(trace, merged=merged, imports=imports) == [], trace.path
        counts = collections.Counter(e.get("cat") for e in trace.events)
        assert not {category: counts[category] for category, least in expect.items() if counts[category] < least}, trace.path
        if OTHER_CHECKER.exists():
            other = subprocess.run([sys.executable, OTHER_CHECKER, trace.path, *(["--merged"] if merged else []),
                                    *(arg for category, least in expect.items() for arg in ("--expect", "%s:%d" % (category, least)))],
                                   capture_output=True, text=True)
            assert other.returncode == 0, other.stdout + other.stderr
        return trace
    return check


@pytest.fixture
def program(tmp_path):
    """program(TEXT) writes a script and gives its path."""
    def write(text, name="program.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path
    return write


@dataclasses.dataclass(frozen=True)
class Python:
    path: str
    version: tuple
    has_torch: bool
    is_shared: bool  # has a libpython

    def __str__(self):
        return "%s-%s" % (".".join(map(str, self.version)), "shared" if self.is_shared else "static")


@functools.lru_cache(None)
def find_pythons():
    """A CPython of this machine of each version from 3.10 on: that which has torch, or the last."""
    return [Python(path, tuple(version), *more) for path, version, *more in look_for_pythons()]


@found_once
def look_for_pythons():
    """The fields of each."""
    places = os.environ.get("PATH", "").split(":") + ["/usr/bin", "/usr/local/bin"]
    places += [str(p / "bin") for p in sorted((pathlib.Path.home() / ".pyenv" / "versions").glob("*"))]
    found = {}
    for place in places:
        for name in ["python3"] + ["python3.%d" % minor for minor in range(10, 20)]:
            path = os.path.join(place, name)
            if "/shims" in place or not os.access(path, os.X_OK) or os.path.realpath(path) in found:
                continue
            probe = subprocess.run([path, "-c", "import sys, importlib.util as u; "
                                    "print(sys.implementation.name, *sys.version_info[:3], u.find_spec('torch') is not None)"],
                                   capture_output=True, text=True, env=clean_environment())
            match = re.fullmatch(r"cpython (\d+) (\d+) (\d+) (True|False)\n", probe.stdout)
            if match and (int(match[1]), int(match[2])) >= (3, 10):
                version = tuple(int(match[i]) for i in (1, 2, 3))
                linked = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
                found[os.path.realpath(path)] = [os.path.realpath(path), version, match[4] == "True", "libpython" in linked]
    each = {(version[0], version[1]): [path, version, *more] for path, version, *more in sorted(found.values(), key=lambda p: (p[2], p[1], p[0]))}
    return sorted(each.values(), key=lambda p: p[1])


def find_tail_call_python():
    """A CPython configured --with-tail-call-interp: that of TORCHPROF_TAIL_CALL_PYTHON, or one of those that are found. None: there is none."""
    for path in [TAIL_CALL_PYTHON] if TAIL_CALL_PYTHON else [p.path for p in find_pythons() if p.version >= (3, 14)]:
        configured = subprocess.run([path, "-c", "import sysconfig; print(sysconfig.get_config_var('CONFIG_ARGS'))"], capture_output=True,
                                    text=True, check=True, env=clean_environment())
        if "--with-tail-call-interp" in configured.stdout:
            return path
        assert not TAIL_CALL_PYTHON, "%s was not configured --with-tail-call-interp" % path
    return None


def pytest_generate_tests(metafunc):
    if "python" in metafunc.fixturenames:
        least = metafunc.definition.get_closest_marker("since")
        found = find_pythons()
        # The newest and that of torch, and where it is about Python alone the oldest; the others when there is time.
        oldest = [found[0].path] if "e2e/python/" in metafunc.definition.nodeid else []
        quick = {found[-1].path, *oldest, *(p.path for p in found if p.has_torch)}
        metafunc.parametrize("python", [pytest.param(p, id=str(p), marks=[] if p.path in quick else pytest.mark.slow)
                                        for p in found if not least or p.version >= least.args])


@pytest.fixture(scope="session")
def mount_namespace():
    """What to put before a command so that it may mount disks that nobody else sees. Containers often forbid it."""
    for way in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        if subprocess.run([*way, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0:
            return way
    pytest.skip("no mount namespace may be made here")


@pytest.fixture
def memory_limit():
    """memory_limit(BYTES) makes a memory cgroup, of version 1 or 2, and gives its directory: what is written into its cgroup.procs stays below the limit."""
    made = []

    def make(size):
        root = pathlib.Path("/sys/fs/cgroup")
        try:
            if not (root / "memory").is_dir():
                (root / "cgroup.subtree_control").write_text("+memory")
            group = root / "memory" if (root / "memory").is_dir() else root
            made.append(group / ("torchprof-test-%d-%d" % (os.getpid(), len(made))))
            made[-1].mkdir()
            limits = [made[-1] / name for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max")]
            for limit in filter(pathlib.Path.exists, limits):
                limit.write_text(str(size))
            if (no_swap := made[-1] / "memory.swap.max").exists():
                no_swap.write_text("0")
        except OSError as error:
            pytest.skip("no memory cgroup may be made here: %s" % error)
        return made[-1]
    yield make
    for group in filter(pathlib.Path.exists, made):
        for _ in range(100):  # its processes have ended, but the kernel may not have removed them yet
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


@pytest.fixture(scope="session")
def torch_python():
    """The interpreter that runs pytest; it has torch, or the tests that ask for it fail."""
    assert importlib.util.find_spec("torch"), "%s has no torch" % sys.executable
    return sys.executable


@pytest.fixture(scope="session")
def examples():
    return ROOT / "examples"


def pytest_report_header(config):
    return "torchprof: %s, pythons: %s" % (INSTALLED or "build %s" % BUILD, ", ".join(map(str, find_pythons())))


def pytest_addoption(parser):
    parser.addoption("--run-slow", action="store_true", help="run the tests that take long as well")
    parser.addoption("--timed", action="store_true", help="run those alone that measure time; where several run at a time they are left out")


def pytest_collection_modifyitems(config, items):
    def leave_out(unwanted):
        config.hook.pytest_deselected(items=[item for item in items if unwanted(item)])
        items[:] = [item for item in items if not unwanted(item)]
    if not config.getoption("--run-slow"):
        leave_out(lambda item: item.get_closest_marker("slow"))
    for item in items if EMULATED else []:
        if reason := emulated.reason_for(item.nodeid):
            item.add_marker(pytest.mark.skip(reason=reason))
    if config.getoption("--timed"):
        leave_out(lambda item: not item.get_closest_marker("timed"))
    elif hasattr(config, "workerinput"):  # of pytest-xdist
        leave_out(lambda item: item.get_closest_marker("timed"))
        items.sort(key=lambda item: spread.unit(config.rootpath, item.nodeid) == item.nodeid)  # what is long comes first, so that all workers end at one time


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return spread.Spread(config, log) if config.getoption("dist") == "loadfile" else None


def set_signals():
    """Gives child processes the signal dispositions of a terminal's shell, whoever started the tests: nohup, `&` in a script and CI
    ignore some, and what is ignored stays so in children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCHLD, signal.SIGTSTP,
                   signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT, signal.SIGWINCH):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def pytest_configure(config):
    set_signals()
    find_pythons()
    if not INSTALLED and not shutil.which("meson"):
        raise pytest.UsageError("meson is not on PATH: the tests install the tree that it built")
