"""The include arrows hold, and the reader of the arrows would see it if they did not."""
import re

import pytest

import arrows
import conftest
from conftest import ROOT


def test_no_include_breaks_an_arrow():
    assert list(arrows.violations(ROOT)) == []


def test_the_reader_of_the_arrows_finds_every_folder_of_the_house():
    for folder in arrows.ALLOWED:
        assert (ROOT / folder).is_dir(), folder
    for header in arrows.FILE_LAYOUT:
        assert (ROOT / header).is_file(), header


PLANTED = {
    "a format that looks into the recorder": ("formats/x.cpp", '#include "tracer/session.h"', "may not include tracer/session.h"),
    "a recorder that knows a format": ("tracer/x.h", '#include "formats/io/output.h"', "may not include formats/io/output.h"),
    "a recorder that knows the launcher": ("tracer/x.cpp", "  #  include <launcher/options.h>", "may not include launcher/options.h"),
    "a launcher that hooks": ("launcher/deep/x.cpp", '#include "inject/entry.h"', "may not include inject/entry.h"),
    "a program that includes a test": ("cupti/x.cpp", '#include "tests/unit/helper.h"', "may not include tests/unit/helper.h"),
    "a header without its folder": ("inject/x.cpp", '#include "entry.h"', "wants its whole path"),
}
HARMLESS = {
    "formats/y.cpp": '#include "tracer/spool/record.h"', "launcher/y.cpp": '#include "tracer/config/config.h"', "inject/y.cpp": '#include "cupti/nvtx.h"',
    "tracer/y.cpp": "#include <vector>\n// #include \"launcher/main.h\"\n#include <sys/mman.h>", "tests/y.cpp": '#include "inject/entry.h"',
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_include_is_found_among_harmless_ones(tmp_path, planted):
    name, line, complaint = PLANTED[planted]
    for harmless, text in {**HARMLESS, name: "\n" + line + "\n"}.items():
        (tmp_path / harmless).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / harmless).write_text(text)
    found = list(arrows.violations(tmp_path))
    assert len(found) == 1 and found[0].startswith("%s:2: " % name) and complaint in found[0]


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
