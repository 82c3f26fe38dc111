"""usage: many_ranks.py RUN OUT RANKS [PER_HOST]: a run of RANKS ranks on RANKS / PER_HOST (8) hosts, made of the ranks of RUN.

Each is a copy of one of RUN's with another rank, world size, process id and host. So its events, times and steps are the original's: what a table of so
many ranks costs can be measured with it, and who is slow cannot. RUN is one of `torchprof run --format none -o RUN ...`, of a job whose ranks have RANK and
WORLD_SIZE in their environment. As long as they trained, so large is each copy: ranks x steps x operators are chosen where RUN is recorded.
"""
import json
import pathlib
import struct
import sys

from spool_records import CHUNK_HEADER, chunks, records_of

STRING, META = 1, 6  # kinds of records (tracer/spool/record.h)
PID, HOST, HOST_SIZE, CHUNK_COMMITTED = 16, 144, 64, 16
KIND, DEFINITIONS, CHUNK_SEQUENCE = 4, 2, 12


def definitions(data):
    """Ids by string, facts by name, and where the last chunk of definitions begins with the bytes that it has."""
    strings, facts, last = {}, {}, None
    for at, committed in chunks(data):
        if data[at + KIND] != DEFINITIONS:
            continue
        sequence, = struct.unpack_from("<I", data, at + CHUNK_SEQUENCE)
        last = max(last or (-1, 0, 0), (sequence, at, committed))
        for kind, record in records_of(data, at, committed):
            if kind == STRING:
                number, size = struct.unpack_from("<II", record, 8)
                strings[number] = bytes(record[16:16 + size]).decode(errors="surrogateescape")
            elif kind == META:
                facts.update([struct.unpack_from("<II", record, 8)])
    return strings, {strings[key]: strings[value] for key, value in facts.items()}, last[1:]


def copy_of(original, host, pid, facts):
    """The spool `original` as bytes with another host, process id and facts, which are defined once more at its end."""
    data = bytearray(original)
    strings, _, (at, committed) = definitions(data)
    numbers = {text: number for number, text in strings.items()}
    more, number = b"", max(strings) + 1
    for name, value in facts.items():
        text = str(value).encode(errors="surrogateescape")
        padded = text + bytes(-len(text) % 8)
        more += struct.pack("<QII", STRING | (2 + len(padded) // 8) << 8, number, len(text)) + padded
        more += struct.pack("<QII", META | 2 << 8, numbers[name], number)
        number += 1
    end = at + CHUNK_HEADER + committed
    assert not any(data[end:end + len(more)]), "no room for facts"
    data[end:end + len(more)] = more
    struct.pack_into("<I", data, at + CHUNK_COMMITTED, committed + len(more))
    struct.pack_into("<I", data, PID, pid)
    data[HOST:HOST + HOST_SIZE] = host.encode().ljust(HOST_SIZE, b"\0")
    return data


def make(run, out, ranks, per_host=8):
    """Returns the bytes of the raw records."""
    originals = []
    for file in sorted((run / "spool").glob("*.spool")):
        data = file.read_bytes()
        _, facts, _ = definitions(data)
        if "environment.RANK" in facts:
            originals.append((int(facts["environment.RANK"]), data, facts))
    assert originals, "no rank in %s" % run
    originals.sort(key=lambda original: original[0])
    (out / "spool").mkdir(parents=True)
    written = 0
    for rank in range(ranks):
        _, data, facts = originals[rank % len(originals)]
        new = {"environment.RANK": rank, "environment.WORLD_SIZE": ranks, "environment.LOCAL_RANK": rank % per_host,
               "distributed.rank": rank, "distributed.world_size": ranks}
        if group := facts.get("distributed.group.0"):
            new["distributed.group.0"] = "\t".join([str(ranks), "0-%d" % (ranks - 1), *group.split("\t")[2:]])
        host, pid = "node%04d" % (rank // per_host), 10000 + rank % per_host
        copy = copy_of(data, host, pid, {name: value for name, value in new.items() if name in facts})
        written += (out / "spool" / ("%s.%d.%d.spool" % (host, pid, 10 ** 18 + rank))).write_bytes(copy)
    described = json.loads((run / "run.json").read_text())
    described.update(processes=[], files=[], exported=False)
    (out / "run.json").write_text(json.dumps(described))
    return written


if __name__ == "__main__":
    size = make(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:5]))
    print("%.0f MB of raw records" % (size / 1e6))
