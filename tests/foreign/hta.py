#!/usr/bin/env python3
"""Rows of HTA (facebookresearch/HolisticTraceAnalysis) next to ours, of the same trace files.

    tests/foreign/hta.py SOURCES TRACE... [--launcher PATH] [--path] [--all]

SOURCES is a checkout of HTA (f4d0062), whose tests/data has traces. Python needs pandas and networkx; plotly, which only draws, is stood in for.
Both get the work of all steps but the first, times are not rounded, and what HTA counts as work though it is none (cuda_sync) is taken
out. Prints the rows that differ by more than a microsecond, a hundredth of a GB/s or of a percent (--all: all rows); with --path also what
lies on the critical path of each trace, of which no equality is asked. The last line is "N equal, N differ".

What differs, and why: HTA's rates are Kineto's own, of times that files in microseconds round, and it averages a running sum in which rounding
errors count as copies; its kernel types cut each interval to whole microseconds; it knows launches by seven names, without cudaGraphLaunch;
it counts the time by which work overlaps the work before it as a negative pause; and it takes what enters and leaves a queue at one
instant in any order (with a stable sort its averages are ours).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ("kernel", "Kernel", "gpu_memset", "Memset", "gpu_memcpy", "Memcpy")
KINDS = {"COMPUTATION": "only_compute_ns", "COMMUNICATION": "only_communication_ns", "MEMORY": "only_memory_ns",
         "COMPUTATION overlapping COMMUNICATION": "compute_communication_ns", "COMPUTATION overlapping MEMORY": "compute_memory_ns",
         "COMMUNICATION overlapping MEMORY": "communication_memory_ns",
         "COMPUTATION overlapping COMMUNICATION overlapping MEMORY": "all_three_ns"}


def import_hta(sources):
    os.environ.update(HTA_DISABLE_NS_ROUNDING="1", CRITICAL_PATH_ADD_ZERO_WEIGHT_LAUNCH_EDGE="1")
    for name in "plotly", "plotly.express", "plotly.graph_objects", "plotly.subplots":
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].make_subplots = None
    sys.modules["plotly"].express, sys.modules["plotly"].graph_objects = sys.modules["plotly.express"], sys.modules["plotly.graph_objects"]
    sys.path.insert(0, str(sources))
    import logging
    logging.disable(logging.CRITICAL)


def ours(launcher, trace):
    """{table: rows} of our report."""
    command = [launcher, "report", "--json", "-t", "gpu,launches,critical", str(trace)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    tables = json.loads(done.stdout)["tables"]
    keys = {table["name"]: [column["key"] for column in table["columns"]] for table in tables}
    return {table["name"]: [row if isinstance(row, dict) else dict(zip(keys[table["name"]], row)) for row in table["rows"]] for table in tables}


def load(trace):
    """HTA's trace with the work of all steps but the first."""
    from hta.common.trace import Trace
    t = Trace(trace_files={0: str(trace)}, trace_dir="")
    t.parse_traces(use_multiprocessing=False, use_memory_profiling=False)
    frame = t.traces[0].set_index("index", drop=False)
    names = t.symbol_table.get_sym_table()
    categories = frame["cat"].map(lambda i: names[i])
    is_step = frame["name"].map(lambda i: names[i].startswith("ProfilerStep#")) & categories.eq("user_annotation")
    steps = sorted(zip(frame[is_step]["ts"], frame[is_step]["end"]))
    steps = steps[1:] if len(steps) > 1 else steps
    work = frame[categories.isin(WORK) & frame["stream"].ge(0)]
    if steps:
        work = work[work["ts"].ge(steps[0][0]) & work["ts"].lt(steps[-1][1])]
    calls = frame[frame["stream"].eq(-1) & frame["correlation"].ge(0) & frame["correlation"].isin(work["correlation"])]
    import pandas
    frame = pandas.concat([work, calls])
    frame.index.names = [None]
    frame[["ts", "end"]] -= frame["ts"].min()  # as load_traces() does; sums of Unix times would be rounded
    t.traces[0] = frame
    return t


class Rows:
    def __init__(self, shows_all):
        self.shows_all, self.equal, self.differ = shows_all, 0, 0

    def add(self, what, theirs, own, tolerance=1.0):
        if theirs != theirs:  # a NaN: they have nothing
            theirs = 0
        is_equal = own is not None and abs(float(theirs) - float(own)) <= tolerance
        self.equal, self.differ = self.equal + is_equal, self.differ + (not is_equal)
        if self.shows_all or not is_equal:
            print("    %-58s %16.3f %16s%s" % (what, float(theirs), "-" if own is None else "%.3f" % own, "" if is_equal else "  DIFFERS"))


def us(value):
    return None if value is None else value / 1000


def compare(t, tables, rows):
    from hta.analyzers.breakdown_analysis import BreakdownAnalysis
    from hta.analyzers.communication_analysis import CommunicationAnalysis
    from hta.analyzers.cuda_kernel_analysis import CudaKernelAnalysis
    from hta.analyzers.trace_counters import TraceCounters
    frame = t.traces[0]
    gpu = tables["gpu"][0]
    theirs = BreakdownAnalysis.get_temporal_breakdown(t, visualize=False).iloc[0]
    for key, own in ("idle_time(us)", "idle_ns"), ("compute_time(us)", "compute_ns"), ("non_compute_time(us)", "other_ns"), ("kernel_time(us)", "ns"):
        rows.add("temporal breakdown: " + key, theirs[key], us(gpu[own]))
    for row in BreakdownAnalysis.get_gpu_kernel_breakdown(t, visualize=False, include_memory_kernels=True)[0].itertuples():
        rows.add("kernel type: " + row.kernel_type, row.sum, us(gpu[KINDS[row.kernel_type]]))
    if gpu["communication_ns"]:
        overlap = CommunicationAnalysis.get_comm_comp_overlap(t, visualize=False).iloc[0]["comp_comm_overlap_pctg"]
        rows.add("communication overlap, %", overlap, gpu["hidden_percent"], 0.01)
    streams = {row["stream"]: row for row in tables["streams"]}
    for row in BreakdownAnalysis.get_idle_time_breakdown(t, 30, visualize=False)[0].itertuples():
        key = {"host_wait": "host_wait_ns", "kernel_wait": "kernel_wait_ns", "other": "other_wait_ns"}[row.idle_category]
        rows.add("stream %s: %s" % (row.stream, row.idle_category), row.idle_time, us(streams.get(row.stream, {}).get(key)))
    launches = {row["stream"]: row for row in tables["launches"]}
    queue = TraceCounters.get_queue_length_summary(t, [0])
    for (_, stream), row in ([] if queue is None else queue["queue_length"].iterrows()):
        own = launches.get(stream, {})
        for key, mine in ("min", "queue_min"), ("max", "queue_max"), ("mean", "queue_avg"):
            rows.add("stream %d: queue %s" % (stream, key), row[key], own.get(mine), 0.01)
    delays = CudaKernelAnalysis.cuda_kernel_launch_stats(t, [0], visualize=False)[0]
    work = frame[frame["stream"].ge(0)]
    delays = delays.merge(work[["correlation", "stream"]].drop_duplicates("correlation"), on="correlation")
    for stream, part in delays.groupby("stream"):
        own = launches.get(stream, {})
        rows.add("stream %d: launches" % stream, len(part), own.get("works"), 0)
        for key, mine in ("cpu_duration", "call_avg_ns"), ("gpu_duration", "work_avg_ns"), ("launch_delay", "delay_avg_ns"):
            rows.add("stream %d: mean %s" % (stream, key), part[key].mean(), us(own.get(mine)))
        rows.add("stream %d: max launch_delay" % stream, part["launch_delay"].max(), us(own.get("delay_max_ns")))
        rows.add("stream %d: shorter than their calls" % stream, (part["gpu_duration"] < part["cpu_duration"]).sum(), own.get("short_works"), 0)
    copies = {row["name"]: row for row in tables["copies"]}
    rates = TraceCounters.get_memory_bw_summary(t, [0]) if "memory_bw_gbps" in frame else None
    for (_, kind), row in ([] if rates is None else rates["memory_bw_gbps"].iterrows()):
        for key, mine in ("mean", "gb_per_s_avg"), ("max", "gb_per_s_max"):
            rows.add("%s: %s GB/s" % (kind, key), row[key], copies.get(kind, {}).get(mine), 0.01)


def path(trace, tables):
    """HTA's critical path of the second step, or of all, by what it is bound by; and ours."""
    from hta.trace_analysis import TraceAnalysis
    t = TraceAnalysis(trace_files={0: str(trace)}, trace_dir="", include_last_profiler_step=True)
    has_steps = any(name.startswith("ProfilerStep") for name in t.t.symbol_table.get_sym_table())
    found = t.critical_path_analysis(rank=0, annotation="ProfilerStep" if has_steps else "", instance_id=1 if has_steps else None)
    theirs = {} if found is None or not found[1] else found[0].summary().to_dict()
    print("    critical path, HTA:  " + ", ".join("%s %.1f %%" % item for item in theirs.items()))
    print("    critical path, ours: " + ", ".join("%s %.1f %%" % (row["class"], row["share_percent"]) for row in tables["critical"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", type=pathlib.Path)
    parser.add_argument("traces", nargs="+", type=pathlib.Path)
    parser.add_argument("--launcher", type=pathlib.Path, default=ROOT / "build" / "launcher" / "torchprof")
    parser.add_argument("--path", action="store_true")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    import_hta(options.sources.resolve())
    rows = Rows(options.all)
    for trace in options.traces:
        print(trace.name)
        try:
            tables = ours(options.launcher, trace)
        except ValueError as error:
            print("    ours: %s" % error)
            continue
        if len(tables["gpu"]) != 1:
            print("    has work of %d GPUs" % len(tables["gpu"]))
            continue
        try:
            compare(load(trace.resolve()), tables, rows)
            if options.path:
                path(trace.resolve(), tables)
        except Exception as error:  # HTA's own, of any kind
            print("    HTA: %s: %s" % (type(error).__name__, error))
    print("%d equal, %d differ" % (rows.equal, rows.differ))
    return 0


if __name__ == "__main__":
    sys.exit(main())
