"""Moves processes of a run to hosts that do not exist: another name, and a wall clock and monotonic clock that are ahead by `offset_ns` and run faster by
`drift` (2e-5: 20 ppm). The counter, in which events have their times, stays; what a clock said of it is changed in every sample that a spool has
(tracer/spool/layout.h)."""
import json
import struct

from spool_records import FILE_HEADER, chunks

START, LAST, HOST, HOST_SIZE, CHUNK_BASE = 24, 120, 144, 64, 24


def monotonic_start(spool):
    return struct.unpack_from("<Qqq", spool.read_bytes(), START)[1]


def move_to_host(spool, host, offset_ns=0, drift=0.0, since=0):
    """`since`: CLOCK_MONOTONIC at which the clock is ahead by just `offset_ns`. Returns the spool's new name."""
    data = bytearray(spool.read_bytes())
    assert len(data) >= FILE_HEADER

    def change(at):
        ticks, monotonic, real = struct.unpack_from("<Qqq", data, at)
        if ticks:
            faster = round(drift * (monotonic - since))
            struct.pack_into("<Qqq", data, at, ticks, monotonic + faster, real + offset_ns + faster)

    for at in [START, LAST, *(place + CHUNK_BASE for place, _ in chunks(data))]:
        change(at)
    data[HOST:HOST + HOST_SIZE] = host.encode().ljust(HOST_SIZE, b"\0")
    moved = spool.with_name(host + spool.name[spool.name.index("."):])
    spool.unlink()
    moved.write_bytes(data)
    return moved


def rank_of(run_json):
    """The rank of each process by its id, from a run.json."""
    return {p["pid"]: int(p["role"][5:]) for p in json.loads(run_json.read_text())["processes"] if p.get("role", "").startswith("rank ")}


def move_ranks(run, ranks, host, offset_ns, drift=0.0):
    """Moves these ranks of a run directory to one host. All others are on the reference, whose clock begins with the first process."""
    spools = sorted((run / "spool").glob("*.spool"))
    since = min(map(monotonic_start, spools))
    of_pid = rank_of(run / "run.json")
    for spool in spools:
        if of_pid.get(int(spool.name.split(".")[-3])) in ranks:
            move_to_host(spool, host, offset_ns, drift, since)
