"""The include arrows hold, and the reader of the arrows would see it if they did not."""
import re

import pytest

import arrows
import conftest
from conftest import ROOT


def test_no_include_breaks_an_arrow():
    assert list(arrows.violations(ROOT)) == []


def test_the_reader_of_the_arrows_finds_every_folder_and_room_of_the_house():
    house = arrows.House(ROOT)
    for folder in {name for names in arrows.ACROSS.values() for name in names} | set(arrows.ACROSS) | set(arrows.WITH_DOORS):
        assert (ROOT / folder).is_dir(), folder
    assert len(house.rooms["tracer"]) >= 8 and len(house.rooms["formats"]) >= 15


def test_contributors_are_shown_the_same_drawing():
    drawings = re.findall(r"^    (?:inject|tracer|formats|launcher).*(?:<|-->).*$", arrows.__doc__, re.MULTILINE)
    assert len(drawings) == 4
    for drawing in drawings:
        assert re.sub(r" *\(.*", "", drawing) in (ROOT / "CONTRIBUTING.md").read_text()


@pytest.mark.parametrize("folder", arrows.ROOMY)
def test_the_drawing_shows_every_room_behind_those_that_it_includes(folder):
    drawn = re.search(r"^ +%s: +(.*)$" % folder, arrows.__doc__, re.MULTILINE)[1]
    place = {room: i for i, rooms in enumerate(drawn.split(" < ")) for room in rooms.split(", ")}
    for name, room in arrows.House(ROOT).rooms[folder].items():
        outer = name.partition("/")[0]
        for other in room.includes:
            inner = other.partition("/")[0]
            assert inner == outer or place[inner] < place[outer], "%s includes %s" % (name, other)


# A small house in order. Every planted fault changes one file of it, or adds one.
HOUSE = {
    "tracer/meson.build": "# Includes: spool.",
    "tracer/y.cpp": '#include <vector>\n#include "tracer/spool/record.h"\n// #include "launcher/main.h"\n#include <sys/mman.h>',
    "tracer/spool/meson.build": "# Includes: nothing.", "tracer/spool/record.h": "", "tracer/config/meson.build": "# Includes: nothing.", "tracer/config/y.h": "",
    "tracer/python/meson.build": "# What it is.\n# Includes: heart.\n# Door: site.h.", "tracer/python/site.h": '#include "tracer/session.h"', "tracer/python/inner.h": "",
    "tracer/native/meson.build": "# Includes: python.\n# Door: stack.h.", "tracer/native/stack.h": '#include "tracer/python/site.h"',
    "tracer/torch/meson.build": "# Includes: python, native.\n# Door: operators.h.",
    "tracer/torch/operators.h": '#include "tracer/native/stack.h"\n#include "tracer/python/site.h"',
    "formats/io/meson.build": "# Includes: nothing.", "formats/io/output.h": "", "formats/write/json/meson.build": "# Includes: io.",
    "formats/write/json/y.cpp": '#include "formats/io/output.h"\n#include "tracer/spool/record.h"',
    "formats/write/meson.build": "# Includes: write/json.", "formats/write/y.cpp": '#include "formats/write/json/y.h"',
    "launcher/meson.build": "# Includes: nothing.", "launcher/y.cpp": '#include "tracer/config/config.h"\n#include "formats/write/y.h"\n#include "tracer/spool/record.h"',
    "cupti/y.cpp": '#include "tracer/torch/operators.h"', "inject/y.cpp": '#include "cupti/nvtx/nvtx.h"\n#include "tracer/python/inner.h"',
    "tests/y.cpp": '#include "inject/entry.h"',
}
PLANTED = {
    "a format that looks into the recorder": ("formats/io/x.cpp", '\n#include "tracer/session.h"', "may not include tracer/session.h"),
    "a recorder that knows a format": ("tracer/x.h", '\n#include "formats/io/output.h"', "may not include formats/io/output.h"),
    "a recorder that knows the launcher": ("tracer/x.cpp", "\n  #  include <launcher/options.h>", "may not include launcher/options.h"),
    "a launcher that hooks": ("launcher/x.cpp", '\n#include "inject/entry.h"', "may not include inject/entry.h"),
    "a launcher that knows the recorder's heart": ("launcher/x.cpp", '\n#include "tracer/session.h"', "may not include tracer/session.h"),
    "a program that includes a test": ("cupti/x.cpp", '\n#include "tests/unit/helper.h"', "may not include tests/unit/helper.h"),
    "a GPU source that hooks": ("cupti/x.cpp", '\n#include "inject/entry.h"', "may not include inject/entry.h"),
    "a header without its folder": ("inject/x.cpp", '\n#include "entry.h"', "wants its whole path"),
    "a heart that knows a source": ("tracer/x.cpp", '\n#include "tracer/python/site.h"', "may not include tracer/python/site.h"),
    "a source that knows a later one": ("tracer/python/x.cpp", '\n#include "tracer/native/stack.h"', "tracer/python may not include"),
    "a room that includes one that it does not name": ("tracer/spool/x.cpp", '\n#include "tracer/config/y.h"', "its meson.build does not name config"),
    "a room that includes a room inside of itself, unnamed": ("formats/io/x.cpp", '\n#include "formats/write/json/y.h"', "does not name write/json"),
    "a way past the door": ("tracer/torch/x.cpp", '\n#include "tracer/python/inner.h"', "inner.h is not in the door of tracer/python"),
    "a GPU source past the door": ("cupti/x.cpp", '\n#include "tracer/python/inner.h"', "inner.h is not in the door of tracer/python"),
    "a door to nowhere": ("tracer/python/meson.build", "# Includes: heart.\n# Door: site.h, gone.h.", "there is no gone.h"),
    "a door that nobody uses": ("tracer/python/meson.build", "# Includes: heart.\n# Door: site.h, inner.h.", "nobody comes in by inner.h"),
    "a source without a door": ("tracer/native/meson.build", "\n# Includes: python.", 'no line "# Door:'),
    "a door of another form": ("tracer/native/meson.build", "# Includes: python.\n# Door: stack.h and others.", 'not of the form "# Door:'),
    "a room that says nothing": ("tracer/config/meson.build", "# What it is.", 'no line "# Includes:'),
    "a room without a meson.build": ("formats/new/x.cpp", "", 'no line "# Includes:'),
    "a line of another form": ("formats/write/json/meson.build", "\n# Includes: io and more.", 'not of the form "# Includes:'),
    "a line without its end": ("formats/write/json/meson.build", "\n# Includes: io", 'not of the form "# Includes:'),
    "two lines": ("formats/write/json/meson.build", "# Includes: io.\n# Includes: io.", 'a second line "Includes:"'),
    "a room that is not there": ("formats/write/json/meson.build", "\n# Includes: io, gone.", "there is no room gone"),
    "a room that no file includes": ("tracer/python/meson.build", "# Door: site.h.\n# Includes: heart, spool.", "no file of it includes spool"),
    "a file beside the rooms": ("formats/x.cpp", "", "sources that lie in no room"),
}


def found_in(tmp_path, files):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    return list(arrows.violations(tmp_path))


def test_a_small_house_is_in_order(tmp_path):
    assert found_in(tmp_path, HOUSE) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found_in_a_house_in_order(tmp_path, planted):
    name, text, complaint = PLANTED[planted]
    found = found_in(tmp_path, {**HOUSE, name: text})
    where = name if not name.endswith("x.cpp") or text else name.replace("x.cpp", "meson.build")
    assert any(line.startswith(where + ":") and complaint in line for line in found), found
    assert {line.partition(":")[0] for line in found} == {where}


def test_rooms_that_include_each_other_are_a_circle(tmp_path):
    found = found_in(tmp_path, {**HOUSE, "formats/io/meson.build": "# Includes: write.", "formats/io/output.h": '#include "formats/write/y.h"'})
    assert found == ["formats/io/meson.build:1: a circle: io -> write -> write/json -> io"]


def test_the_table_of_the_end_to_end_tests_names_each_file_in_its_room():
    listed, room = {}, None
    for line in conftest.__doc__.split("says more:\n")[1].split("\ntests/e2e/support/")[0].splitlines():
        if found := re.fullmatch(r"    (\w+) +(.*)", line):
            room, line = found.groups()
        listed.setdefault(room, []).append(line.strip())
    listed = {room: set(" ".join(lines).rpartition(": ")[2].split()) for room, lines in listed.items() if room}
    there = {}
    for file in (ROOT / "tests" / "e2e").rglob("test_*.py"):
        there.setdefault(file.parent.name, set()).add(file.stem.removeprefix("test_"))
    assert listed == there
