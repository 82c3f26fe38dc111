"""FLOPs: what torch.profiler's with_flops says where it says anything, and the usual formulas beyond."""
import collections
import json
import subprocess

import pytest

from conftest import clean_environment

# Each line of the program runs operators of its own; the shapes are small and all different.
PROGRAM = """
import json, sys, torch
import torch.nn.functional as F

def main():
    r = torch.randn
    r(3, 4).mm(r(4, 5)), torch.addmm(r(7), r(6, 2), r(2, 7), beta=2), torch.addmm(r(2, 7), r(2, 3), r(3, 7))
    torch.bmm(r(2, 3, 4), r(2, 4, 9)), torch.baddbmm(r(2, 3, 5), r(2, 3, 4), r(2, 4, 5)), r(0, 4).mm(r(4, 5))
    r(7, 1) + r(1, 9), r(7, 3) * r(3), r(11) * 2, 3 + r(13), r(()) * r(()), r(5) + r(()), r(()) + 1
    image = r(8, 6, 17, 16)
    for weight, options in [(r(6, 6, 3, 3), dict(stride=2, padding=1)), (r(4, 6, 5, 3), dict(padding=(2, 0), dilation=(1, 3))),
                            (r(6, 1, 3, 3), dict(groups=6)), (r(4, 3, 1, 1), dict(groups=2, stride=(3, 1)))]:
        F.conv2d(image, weight, **options), F.conv2d(image, weight, r(weight.shape[0]), **options)
    model = torch.nn.Sequential(torch.nn.Conv2d(6, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(3))
    model(image).sum().backward()
    F.conv2d(image, r(5, 6, 3, 2), padding="same", dilation=2)
    F.conv2d(image[0], r(5, 6, 3, 3))
    F.conv1d(r(2, 4, 19), r(6, 2, 3), stride=2, padding=2, groups=2)
    F.conv3d(r(2, 4, 5, 6, 7), r(3, 4, 2, 2, 3))
    F.conv_transpose2d(r(2, 4, 9, 8), r(4, 5, 3, 3), stride=2, groups=2, output_padding=1)
    F.linear(r(2, 3, 4), r(5, 4), r(5))
    if hasattr(F, "scaled_dot_product_attention"):
        F.scaled_dot_product_attention(r(2, 4, 10, 8), r(2, 4, 12, 8), r(2, 4, 12, 6))

torch.manual_seed(0)
main()
if len(sys.argv) > 1:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, with_flops=True) as p:
        main()
    # Not p.events(): that leaves out an operator whose only child has its name (aten::mul of a number).
    json.dump([[e.name(), e.flops()] for e in p.profiler.kineto_results.events() if e.flops()], open(sys.argv[1], "w"))
else:
    with torch.profiler.record_function("seen"):
        main()
"""


@pytest.fixture(scope="module")
def both(launcher, torch_python, tmp_path_factory):
    """(our trace, what torch.profiler says of the same program)"""
    from conftest import profile
    directory = tmp_path_factory.mktemp("flops")
    program, out = directory / "program.py", directory / "theirs.json"
    program.write_text(PROGRAM)
    run = profile(launcher, directory / "run", [torch_python, program], options=["--python", "off"])
    assert run.status == 0, run.stderr
    subprocess.run([torch_python, program, out], check=True, env=clean_environment(), capture_output=True)
    return run, [tuple(row) for row in json.loads(out.read_text())]


def flops(trace):
    seen, = (e for e in trace.spans("user_annotation") if e["name"] == "seen")
    return [(e["name"], e["args"]["FLOPs"], e["args"]["Input Dims"]) for e in trace.spans("cpu_op")
            if "FLOPs" in e["args"] and seen["ts"] <= e["ts"] <= seen["ts"] + seen["dur"]]


def test_where_torch_has_a_number_ours_is_the_same(both):
    run, theirs = both
    names = {name for name, _ in theirs}
    assert names == {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::conv2d", "aten::add", "aten::mul"}
    ours = collections.Counter((name, count) for name, count, _ in flops(run.trace()) if name in names)
    assert collections.Counter(theirs) - ours == collections.Counter()
    # torch has no formula for padding by name and for a picture without a batch.
    assert ours - collections.Counter(theirs) == collections.Counter(
        [("aten::conv2d", 2 * 8 * 17 * 16 * 5 * 6 * 3 * 2), ("aten::conv2d", 2 * 15 * 14 * 5 * 6 * 3 * 3)])


def test_beyond_torch_the_usual_formulas_hold(both):
    run, _ = both
    ours = {(name, json.dumps(dims[:2])): count for name, count, dims in flops(run.trace())}
    assert ours["aten::conv1d", "[[2, 4, 19], [6, 2, 3]]"] == 2 * 2 * 11 * 6 * 2 * 3
    assert ours["aten::conv3d", "[[2, 4, 5, 6, 7], [3, 4, 2, 2, 3]]"] == 2 * 2 * (4 * 5 * 5) * 3 * 4 * (2 * 2 * 3)
    assert ours["aten::conv_transpose2d", "[[2, 4, 9, 8], [4, 5, 3, 3]]"] == 2 * 2 * (9 * 8) * 4 * 5 * (3 * 3)
    assert ours["aten::convolution", "[[2, 4, 9, 8], [4, 5, 3, 3]]"] == ours["aten::conv_transpose2d", "[[2, 4, 9, 8], [4, 5, 3, 3]]"]
    assert ours["aten::linear", "[[2, 3, 4], [5, 4]]"] == 2 * 2 * 3 * 4 * 5
    attention = {name: count for (name, dims), count in ours.items() if dims == "[[2, 4, 10, 8], [2, 4, 12, 8]]"}
    if attention:  # torch 2
        assert set(attention) >= {"aten::scaled_dot_product_attention"}
        assert set(attention.values()) == {2 * 2 * 4 * 10 * 12 * (8 + 6)}


def test_the_operators_table_and_the_header_show_them(both, torchprof):
    run, _ = both
    assert run.trace().doc["with_flops"] == 1
    for what in (run.directory, *run.trace_paths):
        text = torchprof("report", what, "--top", "50").stdout
        rows = [line for line in text.splitlines() if line.endswith("  aten::conv3d")]
        assert "GFLOPs" in text and rows and all(" 0.000 " in row for row in rows)


def test_they_can_be_switched_off(run_torchprof, torch_python):
    run = run_torchprof([torch_python, "-c", "import torch; torch.randn(2, 3).mm(torch.randn(3, 4))"], options=["--flops", "off"])
    trace = run.trace()
    assert [e for e in trace.spans("cpu_op") if e["name"] == "aten::mm"] and not [e for e in trace.spans("cpu_op") if "FLOPs" in e["args"]]
    assert "with_flops" not in trace.doc and "flops off: switched off (--flops off)" in run.stderr
