"""Part `counts`: what torchprof recorded of each workload beside what torch.profiler did, in a run of its own.

CUPTI serves one of them at a time, so durations are not compared: how often each kernel, copy, set and call came, on
which stream, and what the records say that is the same in each run. Both programs leave by os._exit when their work is
done, so that what torch does at its end is in neither.
"""
import collections
import gzip
import json
import pathlib
import re
import shutil

import record_results
import record_runs
import workloads
from record_results import DIFFERS, MEASURED, NOT_RUN, OK, Result, Table

GROUPS = {"kernel": "kernels", "gpu_memcpy": "copies", "gpu_memset": "sets"}
# The same in each run, so that it is compared too. A trace that lacks one of them says nothing of it.
SAYS = {"kernels": ("grid", "block", "registers per thread", "shared memory"), "copies": ("bytes",), "sets": ("bytes",)}
# Not cudaDeviceSynchronize: torch.profiler adds some of its own.
OTHER_CALLS = re.compile("Memcpy|Memset|StreamSynchronize|EventSynchronize|EventRecord|StreamWaitEvent")
END = "\ntorch.cuda.synchronize()\nos._exit(0)\n"
PROFILED = """
import os, torch
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as recorded_by_torch:
%s
    torch.cuda.synchronize()
recorded_by_torch.export_chrome_trace(%r)
os._exit(0)
"""
MOST_ROWS = 60


def events(path):
    data = pathlib.Path(path).read_bytes()
    return [e for e in json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)["traceEvents"] if e.get("ph") == "X"]


def group_of(event):
    if event.get("cat") in GROUPS:
        return GROUPS[event["cat"]]
    if event.get("cat") in ("cuda_runtime", "cuda_driver"):
        return "launches" if "Launch" in event["name"] else "other calls" if OTHER_CALLS.search(event["name"]) else None
    return None


def work_of(events):
    """How often each (group, name, stream, what it says) is there. Calls have no stream."""
    found = collections.Counter()
    for e in events:
        if group := group_of(e):
            args = e.get("args", {})
            found[group, e["name"], args.get("stream"), tuple((key, str(args.get(key))) for key in SAYS.get(group, ()) if key in args)] += 1
    return found


def without_details(work):
    found = collections.Counter()
    for (group, name, stream, _), n in work.items():
        found[group, name, stream] += n
    return found


def details(work, group, key):
    """How often each (name, value of the key) is there."""
    found = collections.Counter()
    for (of, name, _, says), n in work.items():
        if of == group and key in dict(says):
            found[name, dict(says)[key]] += n
    return found


def same(ours, theirs):
    """Rows [what, torchprof's, torch.profiler's, said] for all that is compared, and for what differs
    rows [what, name, stream or value, torchprof's, torch.profiler's]."""
    rows, different = [], []

    def compare(what, a, b):
        unlike = sorted((key for key in a.keys() | b.keys() if a[key] != b[key]), key=str)
        rows.append([what, sum(a.values()), sum(b.values()), "%d of %d names differ" % (len(unlike), len(a.keys() | b.keys())) if unlike else "the same"])
        different.extend([what, key[0], "" if key[1] is None else key[1], a[key], b[key]] for key in unlike)

    plain = without_details(ours), without_details(theirs)
    for group in (*GROUPS.values(), "launches", "other calls"):
        a, b = (collections.Counter({key[1:]: n for key, n in side.items() if key[0] == group}) for side in plain)
        if not a and not b:
            rows.append([group, 0, 0, "none"])
            continue
        compare(group, a, b)
        for key in SAYS.get(group, ()) if a == b else ():  # where the work itself differs, so does what it says
            of_both = details(ours, group, key), details(theirs, group, key)
            if all(of_both):
                compare("%s: %s" % (group, key), *of_both)
    return rows, different


def compared(name, ours, theirs):
    """The Result of two results of work_of()."""
    rows, different = same(ours, theirs)
    total = sum(n for (group, *_), n in ours.items() if group in GROUPS.values())
    tables = [Table(name, ["", "torchprof", "torch.profiler", ""], rows)]
    if different:
        tables.append(Table("%s: what differs" % name, ["", "name", "stream or value", "torchprof", "torch.profiler"], different[:MOST_ROWS],
                            "The first %d of %d; all are in record.json." % (MOST_ROWS, len(different)) if len(different) > MOST_ROWS else ""))
    nothing = not any(group == "kernels" for group, *_ in theirs)
    said = ("%d pieces of work, what torch.profiler has" % total if not different else
            "; ".join("%s: %s, torch.profiler %s" % (row[0], row[1], row[2]) for row in rows if row[3] not in ("the same", "none")))
    if nothing:
        said += "; torch.profiler has no kernel: nothing was compared"
    return Result("counts", name, DIFFERS if different or nothing else OK, said, tables, {"rows": rows, "different": different})


def alone(name, ours):
    """Without a torch.profiler."""
    plain = without_details(ours)
    groups = collections.Counter()
    for (group, *_), n in plain.items():
        groups[group] += n
    total = sum(n for group, n in groups.items() if group in GROUPS.values())
    return Result("counts", name, MEASURED, "%d pieces of work, no torch.profiler without a GPU" % total, [Table(name, ["", "torchprof"], [list(row) for row in groups.items()])],
                  {"rows": [[*key, n] for key, n in plain.items()]})


def indented(text):
    return "".join("    %s\n" % line for line in text.splitlines())


def measure_one(machine, name, text, out):
    directory = machine.directory() / "run"
    end = END if machine.has_gpu else "\nos._exit(0)\n"
    machine.run([*machine.under_torchprof(directory), machine.python, machine.script("import os\n" + text + end)])
    # Programs have processes of their own that compile kernels; they have no work on the device.
    ours = sum((work_of(events(path)) for path in record_runs.traces(directory)), collections.Counter())
    if not machine.has_gpu:
        return alone(name, ours)
    path = machine.directory() / (name + ".torch.json")
    machine.run([machine.python, machine.script(PROFILED % (indented(text), str(path)))])
    result = compared(name, ours, work_of(events(path)))
    if result.is_bad:  # to be looked into where there is no GPU
        (out / "traces").mkdir(exist_ok=True)
        for number, trace in enumerate(record_runs.traces(directory)):
            shutil.copy(trace, out / "traces" / ("%s.%d.pt.trace.json.gz" % (name, number)))
        (out / "traces" / (path.name + ".gz")).write_bytes(gzip.compress(path.read_bytes()))
    return result


def measure(machine, options):
    for name, text in workloads.workloads(machine).items():
        if options.only and name not in options.only:
            continue
        if why := workloads.why_not(name, machine):
            yield Result("counts", name, NOT_RUN, why)
        else:
            yield record_results.attempt("counts", name, lambda: measure_one(machine, name, text, options.out))
