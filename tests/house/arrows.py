"""Which file may include which: the arrows of the architecture, read from the #include lines and from what the rooms say of themselves.

    inject --> cupti --> tracer <-- formats <-- launcher        (of tracer, formats includes spool alone, launcher spool and config)

    tracer:   processor < libc < process < config < spool < plan < heart < objects < python < heap, sampler < native < torch
    launcher: terminal < attach, options, run_dir < run, watch < subcommands < main
    formats:  io < symbols < trace < values, gpu < replay < ranks, live, native < memory < analysis < timeline < advice, read < diff, report < write

A room is a folder with sources below one of these; the heart is what lies in tracer/ itself, main what lies in launcher/. The comment of its meson.build has one
line of this form, which names rooms of the same folder by their paths in it:

    # Includes: io, trace.                  or, where it is so: # Includes: nothing.

A file may include its own room and those. Each of them is there and is included by some file, and no way along them leads back. A room with
this line as well may be included by those headers alone, except by inject/, which is the way into all of them:

    # Door: site.h, frames.h.

usage: arrows.py [ROOT]: prints each line that breaks a rule; the exit status is 1 if there is one.
"""
import pathlib
import re
import sys

# Folder: what it may include besides itself. tests/ may include everything.
ACROSS = {
    "tracer": (),
    "cupti": ("tracer",),
    "inject": ("cupti", "tracer"),
    "formats": ("tracer/spool",),
    "launcher": ("formats", "tracer/spool", "tracer/config"),
}
ROOMY = ("tracer", "formats", "launcher")  # the folders that have rooms
HEARTS = {"tracer": "heart", "launcher": "main"}  # the room that is such a folder's top level; in the others nothing lies there
WITH_DOORS = ("tracer/python", "tracer/native", "tracer/torch")
NOT_BOUND_BY_DOORS = ("inject",)

SOURCES = (".h", ".cpp", ".inc")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
LINES = {"Includes": re.compile(r"# Includes: (nothing|[a-z_]+(?:/[a-z_]+)*(?:, [a-z_]+(?:/[a-z_]+)*)*)\."),
         "Door": re.compile(r"# Door: ([a-z_]+\.h(?:, [a-z_]+\.h)*)\.")}


def sources(folder):
    return sorted(file for file in folder.rglob("*") if file.suffix in SOURCES)


def includes(file):
    """(number of the line, "<" or a quote, header)"""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1], match[2]


class Room:
    """What the meson.build of `path`, relative to the root, says of it. `name`: as other rooms of its folder call it."""

    def __init__(self, root, path):
        self.path, self.folder = path, path.partition("/")[0]
        self.name = path.partition("/")[2] or HEARTS.get(self.folder, "")
        self.build = path + "/meson.build"
        file = root / self.build
        self.lines = file.read_text().splitlines() if file.is_file() else []
        self.faults = []
        self.at, named = {}, {}
        for kind, form in LINES.items():
            found = [(number, line) for number, line in enumerate(self.lines, 1) if re.match(r"#\s*%s\b" % kind, line)]
            for number, line in found[1:]:
                self.faults.append("%s:%d: a second line \"%s:\"" % (self.build, number, kind))
            self.at[kind] = found[0][0] if found else 1
            match = form.fullmatch(found[0][1]) if found else None
            if found and not match:
                self.faults.append("%s:%d: not of the form \"# %s: NAME, NAME.\"" % (self.build, found[0][0], kind))
            named[kind] = match[1].split(", ") if match else None
            if not found and (kind == "Includes" or path in WITH_DOORS):
                self.faults.append("%s:1: has no line \"# %s: NAME, NAME.\"" % (self.build, kind))
        self.includes = [] if named["Includes"] in (None, ["nothing"]) else named["Includes"]
        self.door = named["Door"]  # None: all its headers
        self.is_read = named["Includes"] is not None

    def fault(self, kind, text):
        return "%s:%d: %s" % (self.build, self.at[kind], text)


def rooms_of(root, folder):
    """Name: Room."""
    paths = {str(file.parent.relative_to(root)) for file in sources(root / folder)}
    return {room.name: room for room in (Room(root, path) for path in sorted(paths))}


def circles(rooms):
    """Each way along the lines that leads back to where it began, once."""
    state, faults = {}, []

    def visit(name, way):
        if state.get(name) == "done" or name not in rooms:
            return
        if name in way:
            faults.append(rooms[name].fault("Includes", "a circle: %s" % " -> ".join(way[way.index(name):] + [name])))
            return
        for other in rooms[name].includes:
            visit(other, way + [name])
        state[name] = "done"
    for name in sorted(rooms):
        visit(name, [])
    return faults


class House:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.rooms = {folder: rooms_of(self.root, folder) for folder in ROOMY}
        self.used = set()  # (path of a room, room that a file of it includes)
        self.entered = set()  # headers that are included from another room, or from a folder that doors bind

    def room_at(self, path):
        """The Room that a file or header lies in; None: it lies in no folder with rooms, or there is no such room."""
        folder, _, rest = path.partition("/")
        name = rest.rpartition("/")[0] or HEARTS.get(folder, "")
        return self.rooms.get(folder, {}).get(name)

    def allows(self, file, header):
        """What is wrong with this include, or None."""
        folder, target = file.partition("/")[0], header.partition("/")[0]
        if folder != target:
            if not any(header.startswith(allowed + "/") for allowed in ACROSS[folder]):
                return "%s may not include %s" % (folder, header)
        here, there = self.room_at(file), self.room_at(header)
        if there is None or (here and here.path == there.path):
            return None
        if here and here.folder == there.folder:
            self.used.add((here.path, there.name))
            if there.name not in here.includes and here.is_read:
                return "%s may not include %s: its meson.build does not name %s" % (here.path, header, there.name)
        if folder in NOT_BOUND_BY_DOORS:
            return None
        self.entered.add(header)
        if there.door is not None and header.rpartition("/")[2] not in there.door:
            return "%s is not in the door of %s" % (header, there.path)
        return None

    def of_files(self):
        for folder in ACROSS:
            for file in sources(self.root / folder):
                path = str(file.relative_to(self.root))
                for number, kind, header in includes(file):
                    ours = header.partition("/")[0] in set(ACROSS) | {"tests"} and "/" in header
                    wrong = self.allows(path, header) if ours else '"%s" wants its whole path from the root, or <> if it is not ours' % header
                    if wrong and (ours or kind == '"'):
                        yield "%s:%d: %s" % (path, number, wrong)

    def of_rooms(self):
        """After of_files()."""
        for folder, rooms in self.rooms.items():
            for room in rooms.values():
                yield from room.faults
                if not room.name:
                    yield "%s:1: sources that lie in no room" % room.build
                for name in room.includes:
                    if name not in rooms:
                        yield room.fault("Includes", "there is no room %s" % name)
                    elif (room.path, name) not in self.used:
                        yield room.fault("Includes", "no file of it includes %s" % name)
                for header in room.door or []:
                    if not (self.root / room.path / header).is_file():
                        yield room.fault("Door", "there is no %s" % header)
                    elif room.path + "/" + header not in self.entered:
                        yield room.fault("Door", "nobody comes in by %s" % header)
            yield from circles(rooms)


def violations(root):
    """Lines "FILE:LINE: what is wrong"."""
    house = House(root)
    yield from house.of_files()
    yield from house.of_rooms()


def main():
    broken = list(violations(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]))
    print("\n".join(broken) or "no include breaks an arrow")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
