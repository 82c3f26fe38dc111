"""What torch's allocators report: every block, on every thread, with what ran when it was allocated; and the peak."""
import collections
import json
import re
import subprocess
import textwrap

import pytest

from conftest import SUPPORT, torch_here

CPU = 0


@pytest.fixture
def traced(run_torchprof, check_trace, program, torch_python):
    """traced(TEXT) runs a program and gives its trace and the table of its memory, as lists of (bytes, blocks, owner)."""
    def run(text, python=None, options=()):
        run = run_torchprof([python or torch_python, program(textwrap.dedent(text))], options=options)
        assert run.status == 0, run.stderr
        return check_trace(run.trace()), (run.directory / "summary.txt").read_text(), run
    return run


def memory_events(trace, name="[memory]"):
    return sorted((e for e in trace.events if e["name"] == name), key=lambda e: e["ts"])


def owners(summary):
    """{owner: (bytes, blocks)} of the first device's peak, sizes as the table prints them."""
    table = summary.partition("\nMemory of the ")[2].partition("\n\n")[0]
    rows = re.findall(r"^ +([\d.]+ \w+) +[\d.]+ % +([\d,]+|-)  (.*)$", table, re.M)
    return {owner: (size, blocks) for size, blocks, owner in rows}


# ---- without torch: blocks of known sizes through the symbol that torch's allocators call ---------------------------------------

REPORT = """
    import ctypes, threading
    report = ctypes.CDLL(None)._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
    report.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint16]
    CPU = 0xff00
    """


def test_a_large_block_has_the_line_that_ran_and_a_small_one_its_function(python, traced):
    trace, summary, _ = traced(REPORT + """
    def allocate():
        first = 1
        report(0x10000, 1 << 20, 1 << 20, 0, CPU)
        report(0x20000, 1 << 21,
               3 << 20, 0,
               CPU)
        for i in range(3):
            report(0x300000 + i, 100, (3 << 20) + 100 * (i + 1), 0, CPU)
        [report(0x400000, 1 << 16, (3 << 20) + 300 + (1 << 16), 0, CPU) for _ in range(1)]
    allocate()
    """, python=python.path)
    line = {e["args"]["Bytes"]: e["args"].get("Python line") for e in memory_events(trace)}
    inside = "<listcomp>" if python.version < (3, 12) else "allocate"
    assert line == {1 << 20: "program.py(9): allocate", 1 << 21: "program.py(10): allocate", 100: None, 1 << 16: "program.py(15): " + inside}
    assert owners(summary)["(no operator), program.py(7): allocate"] == ("300 B", "3")
    assert owners(summary)["(no operator), program.py(10): allocate"] == ("2.00 MiB", "1")


def test_lines_are_found_on_threads_without_the_gil_and_under_a_debugger(python, traced):
    trace, _, _ = traced(REPORT + """
    import sys
    def trace(frame, event, argument):
        return trace
    def work(i):
        for _ in range(50):
            report((i + 1) << 32, 1 << 17, 1 << 17, 0, CPU)
            report((i + 1) << 32, -(1 << 17), 0, 0, CPU)
    threading.settrace(trace)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    """, python=python.path)
    lines = collections.Counter(e["args"].get("Python line") for e in memory_events(trace) if e["args"]["Bytes"] > 0)
    assert lines == {"program.py(12): work": 200}


def test_a_child_made_by_fork_has_its_own_totals_from_where_its_parent_was(python, run_torchprof, program):
    run = run_torchprof([python.path, program(textwrap.dedent(REPORT + """
    import os
    report(0x10000, 1 << 20, 5 << 20, 0, CPU)
    if os.fork() == 0:
        report(0x20000, 1 << 10, (5 << 20) + (1 << 10), 0, CPU)
        report(0x10000, -(1 << 20), (4 << 20) + (1 << 10), 0, CPU)
        raise SystemExit
    os.wait()
    """))])
    totals = sorted([e["args"]["Total Allocated"] for e in memory_events(trace)] for trace in run.traces())
    assert totals == [[5 << 20], [(5 << 20) + (1 << 10), (4 << 20) + (1 << 10)]]


# ---- with torch ----------------------------------------------------------------------------------------------------------------

def test_the_peak_is_who_held_what_then(traced):
    trace, summary, run = traced("""
        import torch
        class Doubler(torch.nn.Module):
            def forward(self, x):
                return torch.cat([x, x])
        def feed():
            a = torch.empty(1 << 20, dtype=torch.uint8)
            for _ in range(3):
                torch.empty(1 << 19, dtype=torch.uint8)
            kept = [torch.empty(1 << 18, dtype=torch.uint8) for _ in range(2)]
            both = Doubler()(a)
            del a, kept
            return torch.empty(1 << 20, dtype=torch.uint8)
        feed()
        """)
    table = owners(summary)
    assert table["aten::empty, program.py(7): feed"] == ("1.00 MiB", "1")
    assert [row for owner, row in table.items() if "nn.Module: Doubler_0, program.py(5): forward" in owner] == [("2.00 MiB", "1")]
    assert sum(int(blocks) for owner, (size, blocks) in table.items() if size.endswith("KiB") and "aten::empty, program.py(10)" in owner) == 2
    assert "Memory of the CPU: at most 3.50 MiB after " in summary
    assert not [owner for owner in table if "program.py(9)" in owner or "program.py(13)" in owner], table


def test_the_peak_has_its_step_and_the_module_its_place_in_the_model_also_in_the_trace(traced, torchprof):
    _, summary, run = traced("""
        import torch
        class Wide(torch.nn.Module):
            def __init__(self, width):
                super().__init__()
                self.width = width
                self.weight = torch.nn.Parameter(torch.ones(1))
            def forward(self, x):
                torch.empty(self.width << 20, dtype=torch.uint8)
                return x * self.weight
        net = torch.nn.Sequential(torch.nn.Sequential(Wide(1), Wide(2)), Wide(1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        def train():
            for step in range(4):
                net[0][1].width = 7 if step == 2 else 2
                net(torch.ones(4)).sum().backward()
                optimizer.step()
        train()
        """)
    for text in (summary, torchprof("report", run.trace_paths[0]).stdout):
        assert re.search(r"^Memory of the CPU: at most 7\.\d\d MiB after [^,;]+, in step 2; ", text, re.M), text
        owner, = [owner for owner, (size, _) in owners(text).items() if size == "7.00 MiB"]
        assert "nn.Module: Wide_1 (0.1), program.py(9): forward" in owner


def test_report_of_the_trace_shows_the_same_peak(traced, torchprof):
    _, summary, run = traced("""
        import torch
        linear = torch.nn.Linear(300, 300)
        def train():
            linear(torch.ones(200, 300)).sum().backward()
        train()
        """)
    report = torchprof("report", "--tables", "memory", run.directory)
    assert owners(report.stdout) == owners(summary) != {}, report.stderr


def test_out_of_memory_that_the_program_catches_is_told(traced):
    trace, summary, _ = traced("""
        import torch
        def greedy():
            try:
                torch.empty(1 << 60, dtype=torch.uint8)
            except RuntimeError:
                pass
        greedy()
        """)
    event, = memory_events(trace, "[OutOfMemory]")
    assert event["args"]["Bytes"] == 1 << 60 and "Addr" not in event["args"]
    assert "out of memory: 1 time, at most 1.00 EiB for aten::empty, program.py(5): greedy" in summary


def test_every_block_is_freed_once_whichever_thread_frees_it(traced):
    trace, _, _ = traced("""
        import threading, torch
        kept = {}
        def allocate(i):
            kept[i] = torch.empty((i + 1) * 100003, dtype=torch.uint8)
        def free(i):
            del kept[i]
        for target in allocate, free:
            threads = [threading.Thread(target=target, args=(i,)) for i in range(8)]
            [t.start() for t in threads]
            [t.join() for t in threads]
        """)
    events = [e for e in memory_events(trace) if abs(e["args"]["Bytes"]) % 100003 == 0]
    assert sorted(e["args"]["Bytes"] for e in events) == sorted(sign * (i + 1) * 100003 for sign in (-1, 1) for i in range(8))
    assert len({e["tid"] for e in events}) >= 8
    allocated = {e["args"]["Addr"]: e["tid"] for e in events if e["args"]["Bytes"] > 0}
    assert all(allocated[e["args"]["Addr"]] != e["tid"] for e in events if e["args"]["Bytes"] < 0)


def test_files_and_shared_memory_have_totals_of_their_own_and_sizes_of_0_are_nothing(traced, tmp_path):
    (tmp_path / "data.bin").write_bytes(b"\0" * 400000)
    trace, summary, _ = traced("""
        import torch
        kept = torch.empty(70001, dtype=torch.uint8)
        nothing = torch.empty(0)
        mapped = torch.from_file("%s", shared=True, size=100000)
        shared = torch.ones(50000).share_memory_()
        grown = torch.empty(90001, dtype=torch.uint8)
        grown.resize_(90005)
        """ % (tmp_path / "data.bin"))
    rows = [[e["args"][k] for k in ("Bytes", "Total Allocated", "Total Reserved")] for e in memory_events(trace)]
    base = next(total - size for size, total, _ in rows if size == 70001)
    assert [400000, 0, 400000] in rows and [200000, 0, 200000] in rows
    assert [-200000, base + 70001, 0] in rows  # the block that went into shared memory
    assert [90005, base + 70001 + 90001 + 90005, 0] in rows and [-90001, base + 70001 + 90005, 0] in rows
    assert not [size for size, _, _ in rows if size == 0]


# Uses torch.profiler's event tree: up to torch 2.6 its tables assign blocks to operators by microseconds.
# hypot marks where work begins and ends.
PROFILED = """
    import json, torch
    from torch.profiler import ProfilerActivity, profile
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
                                torch.nn.Linear(8 * 36, 5))
    one = torch.ones(1)
    def work():
        torch.hypot(one, one, out=one)
        loss = model(torch.randn(4, 3, 8, 8)).log_softmax(1).sum()
        loss.backward()
        before.clear()
        torch.empty(5, 5)
        torch.hypot(one, one, out=one)
    for _ in range(2):
        before = [torch.empty(100000) for _ in range(3)]
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as theirs:
            work()
    def blocks(events, inside):
        for e in events:
            is_operator, is_block = (str(e.tag).endswith(kind) for kind in ("TorchOp", "Allocation"))
            if is_block or e.name == "aten::hypot":
                yield [inside, e.extra_fields.alloc_size if is_block else "hypot"]
            yield from blocks(e.children, e.name if is_operator else inside)
    print(json.dumps(list(blocks(theirs.profiler.kineto_results.experimental_event_tree(), None))))
    """


def test_operators_allocate_and_free_as_much_as_torch_profiler_says_here_and_without_us(traced, run_bare, torch_python, program):
    trace, _, run = traced(PROFILED)
    theirs = json.loads(run.stdout)
    assert theirs == json.loads(run_bare([torch_python, program(textwrap.dedent(PROFILED))]).stdout)
    begin, end = (i for i, (_, what) in enumerate(theirs) if what == "hypot")
    begin_mark, end_mark = sorted((e for e in trace.spans("cpu_op") if e["name"] == "aten::hypot"), key=lambda e: e["ts"])[-2:]
    ours, known = [], set()  # torch.profiler does not see the end of what it has not seen begin
    for e in memory_events(trace):
        if begin_mark["ts"] < e["ts"] < end_mark["ts"] and (e["args"]["Bytes"] > 0 or e["args"]["Addr"] in known):
            known.add(e["args"]["Addr"])
            inside = [s for s in trace.spans("cpu_op") if s["tid"] == e["tid"] and s["ts"] <= e["ts"] < s["ts"] + s["dur"]]
            ours.append((max(inside, key=lambda s: (s["ts"], -s["dur"]))["name"] if inside else None, e["args"]["Bytes"]))
    assert collections.Counter(ours) == collections.Counter(map(tuple, theirs[begin + 1:end]))


# Between two blocks of sizes that nothing else has: functorch's wrappers, sparse and compressed sparse tensors, which hold tensors that
# are no storage of their own.
HELD_BY_OTHERS = """
    import ctypes, gc, json, os, sys, tempfile, torch
    from torch.profiler import ProfilerActivity, profile
    BEGIN, END = 76543, 87654

    def work():
        for _ in range(3):
            (torch.eye(3).to_sparse_csr() @ torch.ones(3, 2)).sum()
            torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([3., 4.]), (2, 2)).coalesce().to_dense()
            torch.autograd.functional.jacobian(torch.sin, torch.ones(3), vectorize=True)
            if hasattr(torch, "func"):
                torch.func.vmap(torch.dot)(torch.ones(3, 2), torch.ones(3, 2))
                torch.func.grad(lambda x: x.sin().sum())(torch.ones(2))
                torch.func.hessian(lambda x: (x.sin() * x).sum())(torch.ones(3))

    def measured():
        torch.empty(BEGIN, dtype=torch.uint8)
        work()
        torch.empty(END, dtype=torch.uint8)

    def log():
        room = 1 << 20
        entries = (ctypes.c_longlong * 2 * room)()
        count = ctypes.CDLL(None).allocator_log(entries, ctypes.c_size_t(room))
        rows = [list(entries[n]) for n in range(count)]
        sizes = [size for _, size in rows]
        last = len(sizes) - sizes[::-1].index(END) - 1
        return rows[last - 1 - sizes[:last][::-1].index(BEGIN):last]

    work()
    gc.disable()
    if "profiler" in sys.argv:
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True):
            measured()
    else:
        measured()
    print(json.dumps(log()))
    """


def test_frees_are_those_of_the_allocator_and_torch_profiler_delays_some(run_torchprof, run_bare, program, torch_python, tmp_path, check_trace):
    """What torch.profiler's weak references keep, from sparse tensors and functorch's wrappers, is freed when it stops: it has fewer frees
    than the program without it."""
    library = tmp_path / "allocator_log.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library, SUPPORT / "allocator_log.c", "-ldl"], check=True)
    script = program(textwrap.dedent(HELD_BY_OTHERS))
    env = {"LD_PRELOAD": library}
    run = run_torchprof([torch_python, script], env=env, options=["--python", "off"])
    assert run.status == 0, run.stderr
    log, bare, delayed = (json.loads(text) for text in (run.stdout, run_bare([torch_python, script], env=env).stdout,
                                                        run_bare([torch_python, script, "profiler"], env=env).stdout))
    events = memory_events(check_trace(run.trace()))
    begin, end = (max(n for n, e in enumerate(events) if e["args"]["Bytes"] == size) for size in (76543, 87654))
    ours = [(e["args"]["Addr"], max(e["args"]["Bytes"], 0)) for e in events[begin:end]]
    blocks = {address for address, _ in ours}
    # The allocator also serves others, who do not report to torch.
    assert ours == [(address, size) for address, size in log if address in blocks]

    def frees(rows):
        return sum(size == 0 for _, size in rows)
    assert frees(log) == frees(bare)
    if torch_here()[1]:
        assert frees(delayed) < frees(bare) and len(delayed) - frees(delayed) >= len(bare) - frees(bare)
