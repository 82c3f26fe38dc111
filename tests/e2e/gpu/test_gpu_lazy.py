"""CUDA that a program initialises late, or before anybody asked for a record: no piece of work is missing, none is there that should not be."""
import collections
import pathlib
import subprocess
import sysconfig

import pytest
import spool_records as spool
from simulated_runs import gpu_lines, gpu_source, run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

# A program of torch for the CPU whose operators launch kernels, as soon as there is a CUDA.
TORCH = """
import torch
from torch.autograd.profiler import record_function
from simulated_gpu import doubled, sim
D, x = doubled(), torch.ones(4, requires_grad=True)
def train(steps):
    for _ in range(steps): D.apply(x).sum().backward(); sim.simMemcpy(1, 4096, 7); sim.simStreamSynchronize(7)
"""
LAZY_IN_WINDOW = TORCH + """
with record_function('on'):
    (x * 3).sum()
    sim.simInit(2)  # as torch._C._cuda_init() does
    train(4)
train(2)
with record_function('on'):
    train(3)
"""
BEFORE_WINDOW = TORCH + """
sim.simInit(2)
train(2)
with record_function('on'):
    train(4)
train(2)
with record_function('on'):
    train(3)
"""
STEPS = 4 + 3


def launched_by(trace):
    """How often each operator launched each kernel."""
    operators = {e["args"]["External id"]: e["name"] for e in trace.spans("cpu_op")}
    return collections.Counter((operators.get(e["args"].get("External id")), e["name"]) for e in trace.spans("kernel"))


@pytest.mark.parametrize("text", [LAZY_IN_WINDOW, BEFORE_WINDOW], ids=["within a window", "before the first window"])
def test_whenever_torch_initialises_cuda_what_windows_want_is_whole(run_simulated, check_trace, text):  # noqa: F811
    run, reports = run_simulated(text, options=["-w", "range=on"])
    assert run.status == 0 and not gpu_lines(run) and gpu_source(run)["state"] == "on", run.stderr
    found, (report,) = spool.gpu_records(spool.spools(run)[0]), reports.values()
    assert not found[spool.DROPPED] and report["10"] == [2 * STEPS, 2 * STEPS]
    assert [len(found[kind]) for kind in (spool.KERNEL, spool.COPY, spool.SYNC, spool.DEVICE, spool.CONTEXT)] == [2 * STEPS, STEPS, STEPS, 2, 1]
    trace = check_trace(run.trace(), expect={"kernel": 2 * STEPS, "gpu_memcpy": STEPS, "cuda_sync": STEPS, "cuda_runtime": 4 * STEPS, "ac2g": 8 * STEPS})
    assert launched_by(trace) == {("Doubled", "double_forward()"): STEPS, ("DoubledBackward", "double_backward()"): STEPS}
    assert len(trace.named("on", "user_annotation")) == 2
    assert trace.names("cpu_op")["aten::mul"] == STEPS * 2 + text.count("x * 3")  # those before CUDA too
    assert trace.names("gpu_user_annotation") == {"on": 2}


# torch._C with no more than this function of it, and a simulated CUDA behind it.
FAKE_TORCH = """
#include <Python.h>
#include <dlfcn.h>
static PyObject* cuda_init(PyObject* self, PyObject* none) {
  void* sim = dlopen(getenv("SIM"), RTLD_LAZY);
  ((int (*)(int))dlsym(sim, "simInit"))(1);
  Py_RETURN_NONE;
}
static PyMethodDef functions[] = {{"_cuda_init", cuda_init, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "torch._C", NULL, -1, functions, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create(&module); }
"""


@pytest.fixture
def fake_torch(tmp_path):
    include = pathlib.Path(sysconfig.get_paths()["include"])
    if not (include / "Python.h").exists():
        pytest.skip("no Python.h in %s" % include)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("from torch import _C\n")
    (tmp_path / "torch.c").write_text(FAKE_TORCH)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-I", include, "-o", tmp_path / "torch" / "_C.so", tmp_path / "torch.c", "-ldl"], check=True)


@pytest.mark.parametrize("gpu", ["full", "on"])
@pytest.mark.parametrize("before", ["", "sim.simInit(1); work()\n"], ids=["by torch", "before torch, by somebody else"])
def test_where_cuda_calls_another_tool_torchs_own_initialisation_tells(run_simulated, check_trace, fake_torch, before, gpu):  # noqa: F811
    """torch.cuda's lazy initialisation is one call of torch._C._cuda_init(): from its end on all is recorded. Where a context was made before
    that, no call can be watched by itself, so all are."""
    run, _ = run_simulated("import sys; sys.path.insert(0, '.')\nfrom simulated_gpu import sim\nimport torch\n"
                           "def work():\n for n in range(5): sim.simLaunch(b'k%d' % n, 7, 1000)\n sim.simMemcpy(1, 64, 7); sim.simDeviceSynchronize()\n"
                           + before + "torch._C._cuda_init()\nwork()\ntorch._C._cuda_init()\nwork()", env={"CUDA_INJECTION64_PATH": "/other.so"}, version="13.0", gpu=gpu)
    assert run.status == 0 and not gpu_lines(run) and gpu_source(run)["state"] == "on", run.stderr
    assert ("all calls" in gpu_source(run)["detail"]) == (gpu == "on" and before != "")
    found = spool.gpu_records(spool.spools(run)[0])
    assert not found[spool.DROPPED]
    trace = check_trace(run.trace(), expect={"kernel": 10, "gpu_memcpy": 2, "cuda_sync": 2 if gpu == "full" else 0, "ac2g": 24})
    assert trace.names("cuda_runtime")["cudaLaunchKernel"] == 10
    assert trace.names("kernel") == {"k%d" % n: 2 for n in range(5)} and len(trace.spans("gpu_memcpy")) == 2
