"""tests/gpu/record.py as it is run, against the simulator and with a stand-in for a torch that has a GPU."""
import json
import subprocess

import pytest

from conftest import BUILD, ROOT, SUPPORT
from simulated_runs import SIM

pytestmark = pytest.mark.once

# torch with a simulated GPU: whatever is called launches a kernel, and its profiler shows what was launched meanwhile.
TORCH_WITH_GPU = """
import json, os, sys
from simulated_gpu import sim
done = []
class Whatever:
    def __init__(self, name): self.name = name
    def __getattr__(self, name): return Whatever(name)
    def __call__(self, *_, **__):
        sim.simInit(1)
        sim.simLaunch(self.name.encode(), 7, 2000)
        done.append(self.name)
        return Whatever('tensor')
    def __matmul__(self, _): return Whatever('matmul')()
class cuda:
    device_count = staticmethod(lambda: 1)
    synchronize = staticmethod(lambda: sim.simDeviceSynchronize())
class profiler:
    ProfilerActivity = Whatever('activities')
    class profile:
        def __init__(self, activities): pass
        def __enter__(self): done.clear(); return self
        def __exit__(self, *_): self.seen = list(done)
        def export_chrome_trace(self, path):
            events = [e for name in self.seen[int(os.environ['PROFILER_MISSES']):] for e in (
                {'ph': 'X', 'cat': 'kernel', 'name': name, 'ts': 0, 'dur': 2, 'args': {'stream': 7}},
                {'ph': 'X', 'cat': 'cuda_runtime', 'name': 'cudaLaunchKernel', 'ts': 0, 'dur': 1, 'args': {}})]
            json.dump({'traceEvents': events}, open(path, 'w'))
randn = Whatever('randn')
"""


@pytest.fixture
def run_record(launcher, torch_python, tmp_path):
    """Runs the script into tmp_path/out; it comes back, with the results by (part, name)."""
    def run(*arguments, python=torch_python):
        done = subprocess.run([ROOT / "tests" / "gpu" / "record.py", *arguments, "--build", BUILD, "--launcher", launcher, "--python", python, "--out", tmp_path / "out"],
                              capture_output=True, text=True)
        written = tmp_path / "out" / "record.json"
        return done, {(r["part"], r["name"]): r for r in json.loads(written.read_text())["results"]} if written.exists() else {}
    return run


@pytest.mark.parametrize("misses, said, state", [
    ("0", "10 pieces of work, what torch.profiler has", "ok"), ("1", "kernels: 10, torch.profiler 9; launches: 10, torch.profiler 9", "DIFFERS"), ("x", "ValueError", "FAILED")],
    ids=["the same", "one more", "torch.profiler fails"])
def test_the_script_compares_with_torch_profiler_where_there_is_a_gpu(run_record, torch_python, tmp_path, misses, said, state):
    """A stand-in for torch, as there is none: all that the script does beside it is real."""
    (tmp_path / "torch.py").write_text(TORCH_WITH_GPU)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nexport SIM="%s" PYTHONPATH="%s:%s" PROFILER_MISSES=%s\nexec %s "$@"\n' % (SIM, tmp_path, SUPPORT, misses, torch_python))
    python.chmod(0o755)
    done, found = run_record("counts", "raw", "--only", "matmul", "--only", "peer", "--only", "resnet", python=python)
    assert done.returncode == (0 if state == "ok" else 1), done.stdout + done.stderr
    assert done.stdout.startswith("a GPU: GPU 0\n")
    result = found["counts", "matmul"]
    assert result["state"] == state and said in result["said"]
    assert found["counts", "peer"]["said"] == "it needs 2 GPUs" and found["raw", "resnet"]["said"] == "this Python has no torchvision"
    assert (tmp_path / "out" / "raw" / "matmul.gpu.records").stat().st_size > 1000 and found["raw", "matmul"]["state"] == "measured"
    kept = sorted(path.name for path in (tmp_path / "out").glob("traces/*"))
    assert kept == (["matmul.0.pt.trace.json.gz", "matmul.torch.json.gz"] if state == "DIFFERS" else [])
    if state == "DIFFERS":
        assert ["kernels", "randn", 7, 1, 0] in result["data"]["different"] and "| kernels | randn | 7 | 1 | 0 |" in (tmp_path / "out" / "record.md").read_text()


@pytest.mark.slow  # a dozen programs with torch
def test_without_a_gpu_the_script_runs_against_the_simulator_and_says_so(run_record, tmp_path):
    done, found = run_record("--only", "autograd", "--only", "everything", "--only", "gpu on", "--only", "SIGKILL", "--seconds", "0.1", "--rounds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("NO GPU: ") and "NO GPU: " in (tmp_path / "out" / "record.md").read_text()
    assert {key: r["state"] for key, r in found.items()} == dict.fromkeys([
        ("counts", "everything"), ("counts", "autograd"), ("cost", "simulated"), ("kill", "SIGKILL"), ("raw", "everything"), ("raw", "autograd")], "measured")
    assert found["counts", "everything"]["said"].startswith("39 pieces of work")  # three times 9 kernels, 3 copies and a memset
    assert found["counts", "autograd"]["said"].startswith("6 pieces of work")
    assert set(found["cost", "simulated"]["data"]["summaries"]) == {"everything", "gpu on"}
    killed, = found["kill", "SIGKILL"]["data"]
    assert killed["announced"] > 0 and killed["kernels"] > 0 and abs(killed["kernels"] - killed["launches"]) <= 20  # those of a turn
    assert {p.name: p.stat().st_size > 1000 for p in (tmp_path / "out" / "raw").iterdir()} == {
        "%s.%s.records" % (name, version): True for name in ("autograd", "everything") for version in ("11.8", "12.4", "13.0")}


def test_the_clock_is_measured_against_the_simulator_and_the_wall_clock_left_alone(run_record):
    done, found = run_record("clock", "--minutes", "0.05")
    assert done.returncode == 0, done.stdout + done.stderr
    result, = found.values()
    assert result["state"] == "measured" and result["data"]["before"] == 0 and result["data"]["kernels"] >= 50
    assert "left alone (--set-clock" in result["said"]


@pytest.mark.parametrize("arguments, said", [
    (["costs"], "no part is called costs"), (["counts", "--only", "nothing"], "nothing is called nothing in counts")])
def test_a_name_that_is_none_is_told(run_record, arguments, said):
    done, _ = run_record(*arguments)
    assert done.returncode != 0 and said in done.stderr, done.stdout


def test_a_python_without_torch_is_told(run_record, tmp_path):
    done, _ = run_record("counts", python="/bin/false")
    assert done.returncode == 1 and "nothing can be measured" in done.stderr and "--python /bin/false" in done.stderr and "Traceback" not in done.stderr
