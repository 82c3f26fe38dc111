"""Reads the records of a spool, from the layout that tracer/spool/layout.h and record.h document; shares nothing with the product's reader."""
import collections
import struct

FILE_HEADER, CHUNK, CHUNK_HEADER, MAGIC, PIECES = 4096, 64 * 1024, 64, 0x4B4E4843, 3
# GpuKernel ... GpuEnvironment by their kinds, and the activity kinds of CUPTI that they come from.
KERNEL, COPY, SET, API, SYNC, EVENT, OVERHEAD, MEMORY, POOL, CLOCK, DROPPED, ENVIRONMENT, DEVICE, CONTEXT = 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 20, 21
OF_CUPTI = {10: KERNEL, 1: COPY, 22: COPY, 2: SET, 4: API, 5: API, 38: SYNC, 36: EVENT, 17: OVERHEAD, 49: MEMORY, 50: POOL, 20: ENVIRONMENT, 8: DEVICE, 9: CONTEXT}


def chunks(data):
    """Where each chunk and each piece of one begins, and the bytes of its records."""
    for at in range(FILE_HEADER, len(data), CHUNK):
        magic, kind, size_log2, _, _, committed = struct.unpack_from("<IBB2xIII", data, at)
        if magic == MAGIC and kind != PIECES:
            yield at, committed
        for piece in range(at + (1 << size_log2), at + CHUNK, 1 << size_log2) if magic == MAGIC and kind == PIECES else ():
            if struct.unpack_from("<I", data, piece)[0] == MAGIC:
                yield piece, struct.unpack_from("<I", data, piece + 16)[0]


def records_of(data, at, committed):
    """Kind and bytes of each long record of the chunk at this place, header included."""
    here, end = at + CHUNK_HEADER, at + CHUNK_HEADER + committed
    while here < end:
        head, = struct.unpack_from("<Q", data, here)
        if head & 0x80:
            here += 24 if head & 0xFF >= 224 else 16 if head & 0xFF >= 192 else 8
            continue
        size = (head >> 8 & 0xFFF) * 8
        yield head & 0xFF, data[here:here + size]
        here += size


def records(path):
    """The same of all chunks."""
    data = path.read_bytes()
    for at, committed in chunks(data):
        yield from records_of(data, at, committed)


def spools(run):
    return sorted((run.directory / "spool").glob("*.spool"))


def gpu_records(path):
    """The records of GPUs by kind."""
    found = collections.defaultdict(list)
    for kind, record in records(path):
        if 72 <= kind <= 83 or kind in (DEVICE, CONTEXT):
            found[kind].append(record)
    return found


def fields(layout, records_, at):
    return [struct.unpack_from("<" + layout, r, at) for r in records_]


def correlations(found, kind):
    """As gpu_records.h has them."""
    place = {KERNEL: 52, COPY: 40, SET: 40, API: 32, SYNC: 32, EVENT: 24, MEMORY: 32}[kind]
    return [c for c, in fields("I", found[kind], place)]


def dropped(found):
    """Counts by cause: 1 CUPTI had no room, 2 malformed, 3 unknown, 4 and 5 edges of a gap."""
    sums = collections.Counter()
    for count, _, _, cause in fields("QIIB", found[DROPPED], 8):
        sums[cause] += count
    return sums
