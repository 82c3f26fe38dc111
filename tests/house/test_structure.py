"""The size of the rooms and of the files in them: what a stranger can overlook at a glance."""
import collections
import statistics
import subprocess

from conftest import ROOT

PRODUCT = ("cupti", "formats", "inject", "launcher", "tracer")
MOST_FILES, MOST_LINES, MEDIAN = 40, 500, 120
LISTS = {"tracer/spool/record.h"}  # one list, which is not to be in pieces


def tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in listed if name and (ROOT / name).is_file()]


def test_no_folder_is_crowded():
    # Golden files are data, one a case of one test.
    folders = collections.Counter(name.rpartition("/")[0] for name in tracked() if "/golden/" not in name)
    assert len(folders) > 40
    assert {folder: count for folder, count in folders.items() if count > MOST_FILES} == {}


def test_no_file_of_the_product_is_long():
    lines = {name: len((ROOT / name).read_text().splitlines()) for name in tracked()
             if name.startswith(tuple(folder + "/" for folder in PRODUCT)) and name.endswith((".h", ".cpp"))}
    assert {name: count for name, count in lines.items() if count > MOST_LINES and name not in LISTS} == {}
    assert statistics.median(lines.values()) < MEDIAN
