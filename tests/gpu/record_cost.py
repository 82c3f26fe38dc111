"""Part `cost`: what torchprof and torch.profiler add to a step, each in a process in which bare steps take turns with
profiled ones (steps.py).

What is said is the median of the differences of two turns that follow each other, with the interval in which 95 of 100
such medians lie: a machine whose clocks go up and down moves both turns. A process with torch.profiler may have slower
bare steps after its first session, for what that leaves in CUPTI: see its column `bare`; it is not in what it adds.
"""
import json
import math
import statistics
import subprocess

import record_results
import record_runs
from record_results import MEASURED, NOT_MET, NOT_RUN, OK, Result, Table

GPU_ALONE = ("--python", "off", "--ops", "off", "--memory", "off")
# {name: (what steps.py does, options of torchprof)}
MODES = {
    "nothing": ("torchprof", ("--gpu", "off", *GPU_ALONE)),
    "gpu kernels": ("torchprof", ("--gpu", "kernels", *GPU_ALONE)),
    "gpu on": ("torchprof", ("--gpu", "on", *GPU_ALONE)),
    "gpu full": ("torchprof", ("--gpu", "full", *GPU_ALONE)),
    "everything but gpu": ("torchprof", ("--gpu", "off")),
    "everything": ("torchprof", ("--gpu", "on")),
    "torch.profiler CUDA": ("cuda", None),
    "torch.profiler CPU+CUDA": ("cpu+cuda", None),
    "torch.profiler all": ("all", None),
}
STEPS = {"launch-bound": ("launch", list(MODES)), "GPU-bound": ("device", ["nothing", "gpu on", "everything", "torch.profiler CPU+CUDA"])}
SIMULATED = {"simulated": ("simulated", [mode for mode, (_, options) in MODES.items() if options])}
HEAD = ["", "bare (ms)", "profiled (ms)", "adds (ms)", "from", "to", "ratio", "opening (ms)", "closing (ms)", "turns"]


def median_between(values):
    """(median, from, to): 95 of 100 such medians lie between the two, however the values are distributed."""
    ordered, n = sorted(values), len(values)
    reach = 0.98 * math.sqrt(n)
    low, high = math.floor(n / 2 - reach), math.ceil(n / 2 + reach) - 1
    return statistics.median(ordered), ordered[max(low, 0)], ordered[min(high, n - 1)]


def summary(runs):
    """Of what steps.py printed, once for each round."""
    pairs = [(statistics.median(bare), statistics.median(on)) for run in runs for bare, on in zip(run["bare"], run["on"])]
    adds, low, high = median_between([on - bare for bare, on in pairs])
    bare, profiled = (statistics.median(side) for side in zip(*pairs))
    opening, closing = (statistics.median(edge) for edge in zip(*(edge for run in runs for edge in run["edges"])))
    return {"bare": bare, "profiled": profiled, "adds": adds, "from": low, "to": high, "opening": opening, "closing": closing, "turns": len(pairs)}


def row(mode, s):
    return [mode, *("%.2f" % s[key] for key in ("bare", "profiled", "adds", "from", "to")), "%.3f" % (1 + s["adds"] / s["bare"]), "%.1f" % s["opening"], "%.1f" % s["closing"], s["turns"]]


def verdict(name, needs, holds, said):
    """`needs`: the summaries, None for one that is missing. `holds`: whether what each adds is as it should be."""
    if missing := [mode for mode, s in needs.items() if s is None]:
        return Result("cost", name, NOT_RUN, "not measured: %s" % ", ".join(missing))
    found = list(needs.values())
    is_met = holds(*(s["adds"] for s in found))
    # The same where it is hardest and where it is easiest to meet: the first is to be small, what follows large.
    hardest = holds(found[0]["to"], *(s["from"] for s in found[1:]))
    easiest = holds(found[0]["from"], *(s["to"] for s in found[1:]))
    return Result("cost", name, OK if is_met else NOT_MET, said + ("" if hardest == easiest else " (the spread leaves room for the opposite)"))


def verdicts(of):
    """`of`: {step: {mode: summary}}"""
    launch, device = of.get("launch-bound", {}), of.get("GPU-bound", {})

    def adds(s):
        return "?" if s is None else "%.2f ms" % s["adds"]
    on, kineto_gpu, everything, kineto = (launch.get(mode) for mode in ("gpu on", "torch.profiler CUDA", "everything", "torch.profiler CPU+CUDA"))
    yield verdict("the GPU part", {"gpu on": on, "torch.profiler CUDA": kineto_gpu}, lambda ours, theirs: ours <= theirs / 4,
                  "adds %s, at most a quarter of torch.profiler's %s" % (adds(on), adds(kineto_gpu)))
    yield verdict("everything on", {"everything": everything, "torch.profiler CPU+CUDA": kineto}, lambda ours, theirs: ours < theirs,
                  "adds %s, less than torch.profiler's %s" % (adds(everything), adds(kineto)))
    bound = device.get("everything")
    bare = bound["bare"] if bound else 0
    yield verdict("a GPU-bound step", {"everything, GPU-bound": bound}, lambda ours: ours <= bare / 100, "adds %s to %.1f ms, at most 1 %%" % (adds(bound), bare))


def run_once(machine, kind, mode, seconds, **env):
    what, options = MODES[mode]
    command = [machine.python, record_runs.HERE / "steps.py", kind, what, seconds]
    if options is not None:
        command = [*machine.under_torchprof(machine.directory() / "run", "-w", "range=bench", "--format", "none", *options), *command]
    return json.loads(record_runs.last_line(machine.run(command, timeout=machine.timeout + seconds, **env)))


def library_with_ranges(machine):
    """NVTX without CUDA, for the simulator."""
    library = machine.scratch / "libranges.so"
    subprocess.run(["cc", "-O1", "-DOWN_CLIENT", "-shared", "-fPIC", "-o", library, record_runs.ROOT / "tests" / "nvtx" / "library.c", "-ldl", "-lpthread"], check=True)
    return str(library)


def environment(machine, step):
    if not machine.has_gpu:
        return {"RANGES": library_with_ranges(machine), "CUPTI_SIM": "calls=21", "CUPTI_SIM_VERSION": "13.0"}
    if step != "GPU-bound":
        return {}
    size = json.loads(record_runs.last_line(machine.run([machine.python, record_runs.HERE / "steps.py", "size"])))
    if size["batch"] is None:
        raise record_runs.Failed("no step that the GPU limits was found: %s" % size["why"])
    return {"BATCH": str(size["batch"])}


def measure_step(machine, options, step, kind, modes, summaries):
    try:
        env = environment(machine, step)
    except Exception as error:
        yield record_results.failed("cost", step, error)
        return
    runs, failed = {mode: [] for mode in modes}, {}
    for _ in range(options.rounds):  # all modes in each round: what changes with the hour is in all of them
        for mode in modes:
            if mode not in failed:
                try:
                    runs[mode].append(run_once(machine, kind, mode, options.seconds, **env))
                except Exception as error:
                    failed[mode] = record_results.failed("cost", "%s, %s" % (step, mode), error)
    summaries[step] = {mode: summary(found) for mode, found in runs.items() if found and mode not in failed}
    yield from failed.values()
    if summaries[step]:
        title = step + (", a batch of %s" % env["BATCH"] if "BATCH" in env else "")
        said = ", ".join("%s %.2f" % (mode, s["adds"]) for mode, s in summaries[step].items())
        yield Result("cost", step, MEASURED, "ms more: " + said, [Table(title, HEAD, [row(mode, s) for mode, s in summaries[step].items()])],
                     {"summaries": summaries[step], "runs": runs, "environment": env})


def measure(machine, options):
    summaries = {}
    for step, (kind, modes) in (STEPS if machine.has_gpu else SIMULATED).items():
        wanted = [mode for mode in modes if not options.only or mode in options.only or step in options.only]
        if wanted:
            yield from measure_step(machine, options, step, kind, wanted, summaries)
    if machine.has_gpu:
        yield from verdicts(summaries)
