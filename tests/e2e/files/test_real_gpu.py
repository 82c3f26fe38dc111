"""A trace of three steps of GPT-2 on an H100 (torch 2.11, CUDA 13.0): it breaks no rule, and its tables are golden. TORCHPROF_UPDATE_GOLDEN=1 writes them anew."""
import pathlib

import pytest

from conftest import setting

pytestmark = pytest.mark.once

UPDATE = setting("UPDATE_GOLDEN")
GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
TRACE = GOLDEN / "gpt2-h100.pt.trace.json.gz"


def test_the_trace_of_a_real_gpu_breaks_no_rule(check_trace):
    trace = check_trace(TRACE, expect={"kernel": 1000, "ac2g": 2000, "cuda_runtime": 1000, "gpu_memcpy": 1})
    launches = {e["args"]["correlation"]: e for e in trace.events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    waited = [e["ts"] - launches[e["args"]["correlation"]]["ts"] for e in trace.spans("kernel") if e["args"]["correlation"] in launches]
    assert len(waited) > 1000 and min(waited) > 0  # no kernel before its launch


@pytest.mark.parametrize("tables", ["summary", "ops", "kernels", "modules", "steps"])
def test_its_tables_are_what_they_were(torchprof, tables):
    done = torchprof("report", TRACE, *([] if tables == "summary" else ["-t", tables]))
    assert done.returncode == 0 and done.stderr == ""
    golden = GOLDEN / ("gpt2-h100.%s.txt" % tables)
    text = done.stdout.replace(str(TRACE.parent), "")
    if UPDATE:
        golden.write_text(text)
    assert text == golden.read_text()
