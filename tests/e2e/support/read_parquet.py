"""A reader of Apache Parquet by its description alone: rows of flat files as our writer and others make them, without a library.

columns(PATH) -> {name: [value, ...]}, a null as None. Debian 12 has no reader of Parquet; where one is installed (sid) the tests use that as well.
"""
import gzip
import struct


class Bytes:
    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, size):
        self.at += size
        assert self.at <= len(self.data)
        return self.data[self.at - size:self.at]

    def uleb(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def zigzag(self):
        value = self.uleb()
        return value >> 1 ^ -(value & 1)

    def packed(self, count, width):
        size = (count * width + 7) // 8
        number = int.from_bytes(self.take(size), "little")
        return [number >> i * width & (1 << width) - 1 for i in range(count)]

    def hybrid(self, count, width):
        values = []
        while len(values) < count:
            head = self.uleb()
            if head & 1:
                for _ in range(head >> 1):
                    values += self.packed(8, width)
            else:
                values += [int.from_bytes(self.take((width + 7) // 8), "little")] * (head >> 1)
        return values[:count]

    def deltas(self):
        block, miniblocks, count, value = self.uleb(), self.uleb(), self.uleb(), self.zigzag()
        values = [value][:count]
        while len(values) < count:
            least = self.zigzag()
            widths = self.take(miniblocks)
            for width in widths:
                if len(values) < count:
                    for above in self.packed(block // miniblocks, width):
                        values.append((values[-1] + least + above + 2 ** 63) % 2 ** 64 - 2 ** 63)
        return values[:count]

    # ---- Thrift's compact protocol: a structure is {id: value} --------------------------------------------------

    def value(self, kind):
        if kind in (1, 2):
            return kind == 1
        if kind in (4, 5, 6):
            return self.zigzag()
        if kind == 8:
            return self.take(self.uleb())
        if kind == 9:
            head = self.take(1)[0]
            size = head >> 4 if head >> 4 < 15 else self.uleb()
            return [self.value(head & 15) for _ in range(size)]
        assert kind == 12, kind
        return self.structure()

    def structure(self):
        fields, last = {}, 0
        while head := self.take(1)[0]:
            last = last + (head >> 4) if head >> 4 else self.zigzag()
            fields[last] = self.value(head & 15)
        return fields


INT64, BOOLEAN, BYTE_ARRAY = 2, 0, 6
PLAIN, DELTA_BINARY_PACKED, RLE_DICTIONARY = 0, 5, 8


def plain(page, kind, count):
    if kind == INT64:
        return list(struct.unpack("<%dq" % count, page.take(8 * count)))
    if kind == BOOLEAN:
        return [bool(bit) for bit in page.packed(count, 1)]
    return [page.take(struct.unpack("<I", page.take(4))[0]).decode() for _ in range(count)]


def footer_of(data):
    assert data[:4] == data[-4:] == b"PAR1"
    size = struct.unpack("<I", data[-8:-4])[0]
    return Bytes(data[-8 - size:-8]).structure()


def columns(path):
    data = path.read_bytes()
    footer = footer_of(data)
    schema = footer[2][1:]
    out = {field[4].decode(): [] for field in schema}
    for group in footer[4]:
        for field, chunk in zip(schema, group[1]):
            about, dictionary = chunk[3], None
            assert about[3] == [field[4]] and about[4] == 2  # its path, GZIP
            at = Bytes(data, about.get(11, about[9]))
            while True:
                head = at.structure()
                page = Bytes(gzip.decompress(at.take(head[3])))
                assert len(page.data) == head[2]
                if head[1] == 2:
                    dictionary = plain(page, field[1], head[7][1])
                    continue
                count, encoding = head[5][1], head[5][2]
                there = [1] * count
                if field[3]:  # it may have nulls
                    there = Bytes(page.take(struct.unpack("<I", page.take(4))[0])).hybrid(count, 1)
                if encoding == RLE_DICTIONARY:
                    values = [dictionary[i] for i in page.hybrid(sum(there), page.take(1)[0])]
                elif encoding == DELTA_BINARY_PACKED:
                    values = page.deltas()
                else:
                    values = plain(page, field[1], sum(there))
                break
            statistics = about[12]
            assert count == group[3] == about[5] and len(values) == sum(there) == count - statistics[3]
            if field[1] == INT64 and values:
                assert [struct.unpack("<q", statistics[i])[0] for i in (6, 5)] == [min(values), max(values)]
            values = iter(values)
            out[field[4].decode()] += [next(values) if is_there else None for is_there in there]
    assert all(len(values) == footer[3] for values in out.values())
    return out
