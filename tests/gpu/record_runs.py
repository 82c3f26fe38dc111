"""How record.py runs programs: bare, under torchprof, with an injected library; on a GPU or against tests/cupti_sim."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Asked of the Python that has torch. What is not there in an old or a small torch is left out.
PROBE = """
import importlib.util, json, platform, sys, torch
def of(f):
    try: return f()
    except Exception: return None
print(json.dumps({
    "torch": of(lambda: torch.__version__), "cuda": of(lambda: torch.version.cuda), "python": sys.version.split()[0], "kernel": platform.release(),
    "gpus": [of(lambda: torch.cuda.get_device_name(n)) or "GPU %d" % n for n in range(torch.cuda.device_count())],
    "modules": [m for m in ("torchvision", "triton") if importlib.util.find_spec(m)] + ["torch.distributed"] * bool(of(lambda: torch.distributed.is_nccl_available()))}, default=str))
"""


class Failed(Exception):
    """A program that ended otherwise than it should. The text is what it said."""


def last_line(text):
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


class Machine:
    """What there is to measure on, and how programs are run there. Simulated where torch has no GPU."""

    def __init__(self, python, launcher, build, scratch, timeout):
        self.python, self.launcher, self.scratch, self.timeout = str(python), str(launcher), pathlib.Path(scratch), timeout
        self.simulator = build / "tests" / "cupti_sim" / "libcupti.so.12"
        self.simulated = {"SIM": str(self.simulator), "PYTHONPATH": str(ROOT / "tests" / "e2e" / "support")}
        # The caller's settings of torchprof are not what is measured.
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("TORCHPROF_")}
        self.about = json.loads(last_line(self.run([self.python, "-c", PROBE])))
        self.gpus, self.modules = self.about["gpus"], self.about["modules"]
        self.has_gpu = bool(self.gpus)
        if not self.has_gpu:
            if not self.simulator.exists():
                raise Failed("torch sees no GPU, and there is no simulator: %s is not built" % self.simulator)
            self.env["PYTHONPATH"] = os.pathsep.join(filter(None, [self.simulated.pop("PYTHONPATH"), self.env.get("PYTHONPATH")]))
            self.env.update(self.simulated)
        self.about.update(self.describe())

    def describe(self):
        found = {"torchprof": last_line(self.run([self.launcher, "--version"])), "processors": os.cpu_count()}
        with contextlib.suppress(OSError):
            found["clock source"] = pathlib.Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
        if self.has_gpu:
            with contextlib.suppress(OSError, Failed):
                found["driver"] = last_line(self.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]))
        return found

    def directory(self):
        return pathlib.Path(tempfile.mkdtemp(dir=self.scratch))

    def environment(self, **more):
        with socket.socket() as free:  # for workloads that meet others, be they alone
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        # Fresh caches: what an earlier run has compiled and measured is made again in each.
        caches = {name: str(self.directory()) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        return {**self.env, **caches, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **more}

    def start(self, command, out, **env):
        """A process in a group of its own that writes to files: no child that lives on holds a pipe."""
        with open("%s.stdout" % out, "wb") as stdout, open("%s.stderr" % out, "wb") as stderr:
            return subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=self.environment(**env),
                                    cwd=self.directory(), start_new_session=True)

    @contextlib.contextmanager
    def started(self, command, out, **env):
        """start(); whatever happens in the block, nothing of it runs on."""
        process = self.start(command, out, **env)
        try:
            yield process
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def run(self, command, timeout=None, **env):
        """What the command says on stdout. Failed with all that it said if it does not end with 0, or not in time."""
        out = self.directory() / "run"
        said = lambda name: pathlib.Path("%s.%s" % (out, name)).read_text(errors="replace")
        try:
            with self.started(command, out, **env) as process:
                status = process.wait(timeout or self.timeout)
        except subprocess.TimeoutExpired:
            raise Failed("%s%s\nit did not end within %d s" % (said("stdout"), said("stderr"), timeout or self.timeout)) from None
        if status != 0:
            raise Failed("%s%s\n%s (status %d)" % (said("stdout"), said("stderr"), last_line(said("stderr")), status))
        return said("stdout")

    def script(self, text):
        path = self.directory() / "workload.py"
        path.write_text(text)
        return path

    def run_text(self, text, **env):
        return self.run([self.python, self.script(text)], **env)

    def under_torchprof(self, directory, *options):
        """What to put before a command."""
        return [self.launcher, "run", "-q", "-o", directory, *options, "--"]


def traces(directory):
    """The trace of a run, as a list; empty if it has none."""
    return sorted(pathlib.Path(directory).glob("trace.json.gz"))
