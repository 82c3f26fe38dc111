"""Part `raw`: what CUPTI itself delivers of each workload, in raw/NAME.gpu.records (raw_records.c).

These are golden data of the decoder's tests: tests/unit/files/gpu_golden_test.cpp.
"""
import struct
import subprocess

import record_results
import record_runs
import workloads
from record_results import MEASURED, NOT_RUN, Result, Table

SIMULATED_VERSIONS = ("11.8", "12.4", "13.0")
KIND_BITS = 0xFFFF  # above them CUPTI marks a record whose work has not ended


def kinds(data):
    """(CUPTI's version, {kind: how many records}) of a file that raw_records.c wrote. An error if it is none."""
    version, = struct.unpack_from("I", data)
    at, found = 4, {}
    while at < len(data):
        size, name = struct.unpack_from("II", data, at)
        kind, = struct.unpack_from("I", data, at + 8)
        at += 8 + size + name
        assert size >= 4 and at <= len(data), "a record ends beyond the end of the file"
        found[kind & KIND_BITS] = found.get(kind & KIND_BITS, 0) + 1
    return version, dict(sorted(found.items()))


def save(machine, library, name, text, out):
    rows = []
    for simulated in (None,) if machine.has_gpu else SIMULATED_VERSIONS:
        file = out / "raw" / ("%s.%s.records" % (name, simulated or "gpu"))
        file.parent.mkdir(exist_ok=True)
        file.unlink(missing_ok=True)
        machine.run_text(text, CUDA_INJECTION64_PATH=str(library), RAW_RECORDS=str(file),
                         **({"CUPTI_LIBRARY": str(machine.simulator), "CUPTI_SIM_VERSION": simulated} if simulated else {}))
        version, found = kinds(file.read_bytes())
        rows.append([file.name, version, file.stat().st_size, sum(found.values()), ", ".join("%d: %d" % kind for kind in found.items())])
    if not all(row[3] for row in rows):
        raise record_runs.Failed("CUPTI %s delivered no record" % rows[0][1])
    return Result("raw", name, MEASURED, "%d records, %d bytes in raw/%s" % (rows[-1][3], rows[-1][2], rows[-1][0]),
                  [Table(name, ["file", "CUPTI", "bytes", "records", "by kind"], rows)], rows)


def measure(machine, options):
    library = machine.scratch / "libraw.so"
    built = subprocess.run(["cc", "-O1", "-Wall", "-shared", "-fPIC", "-o", library, record_runs.HERE / "raw_records.c", "-ldl", "-lpthread"], capture_output=True, text=True)
    if built.returncode != 0:
        raise record_runs.Failed(built.stderr)
    for name, text in workloads.workloads(machine).items():
        if options.only and name not in options.only:
            continue
        if why := workloads.why_not(name, machine):
            yield Result("raw", name, NOT_RUN, why)
        else:
            yield record_results.attempt("raw", name, lambda: save(machine, library, name, text, options.out))
