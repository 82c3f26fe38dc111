"""What the two programs need from the system and show to it, as the linker wrote it down."""
import re
import subprocess

import pytest

from conftest import ROOT


@pytest.fixture(scope="module")
def library(prefix):
    return prefix / "lib" / "torchprof" / "libtorchprof.so"


def read(tool, *arguments):
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=True).stdout


def needed(binary):
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", read("readelf", "-d", binary)))


def without_loader(names):
    return {name for name in names if not name.startswith("ld-linux-")}


def test_the_library_needs_libc_alone(library):
    assert without_loader(needed(library)) == {"libc.so.6"}


def test_the_launcher_needs_libc_and_libm_at_most(launcher):
    assert without_loader(needed(launcher)) - {"libm.so.6"} == {"libc.so.6"}


def names_of_map(text):
    text = re.sub(r"/\*.*?\*/|#[^\n]*", "", text, flags=re.S)
    listed = re.findall(r"global:(.*?)(?:local:|\})", text, flags=re.S)
    return {name.strip() for block in listed for name in block.split(";") if name.strip()}


def test_the_library_exports_exactly_what_exports_map_lists(library):
    listed = names_of_map((ROOT / "inject" / "exports.map").read_text())
    exported = {line.split()[-1].partition("@")[0] for line in read("nm", "-D", "--defined-only", library).splitlines()
                if line.split()[-2] != "A"}  # the version's own name
    assert exported == listed and listed


def test_names_of_a_map_are_read_without_comments():
    assert names_of_map("{ global: /* one; */ first;\n second; # third;\n local: *; };") == {"first", "second"}


def test_the_library_takes_few_bytes_of_static_tls(library):
    """Static TLS that a preloaded library takes may be missing for a library that is loaded later."""
    sizes = [int(line.split()[5], 16) for line in read("readelf", "-lW", library).splitlines() if line.strip().startswith("TLS")]
    assert sum(sizes) <= 256


def test_the_library_is_never_unloaded(library):
    assert re.search(r"\(FLAGS_1\).*NODELETE", read("readelf", "-d", library))


def dry_run_of_a_copy(prefix, moved):
    subprocess.run(["cp", "-r", prefix, moved], check=True)
    return subprocess.run([moved / "bin" / "torchprof", "run", "--dry-run", "--", "true"], capture_output=True, text=True)


def test_the_installed_tree_runs_where_it_is_moved(prefix, tmp_path):
    run = dry_run_of_a_copy(prefix, tmp_path / "elsewhere")
    assert run.returncode == 0, run.stderr
    assert str(tmp_path / "elsewhere" / "lib" / "torchprof" / "libtorchprof.so") in run.stdout


def test_a_place_that_ld_preload_cannot_name_is_refused(prefix, tmp_path):
    run = dry_run_of_a_copy(prefix, tmp_path / "some where")
    assert run.returncode == 125 and "LD_PRELOAD cannot hold a path with a space" in run.stderr


def test_nothing_of_ours_waits_for_a_constructor(library):
    """What the library knows is there before any constructor runs. Otherwise one that comes after ours would undo what ours has learned."""
    names = re.findall(r"(?m)^[0-9a-f]+ t _GLOBAL__sub_I_(\S+)$", read("nm", library))
    # The C++ library's own, and of cupti the one that registers a destructor.
    assert [name for name in names if not name.startswith(("eh_alloc", "recorder_cupti", "cupti_source"))] == []
    assert names  # it was not stripped
