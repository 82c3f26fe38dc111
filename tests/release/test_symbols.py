"""What a release wants of the system, as the linker wrote it down: libc's own libraries, none newer than glibc 2.28. TORCHPROF_BUILD names
build-release/ARCHITECTURE/build, which packaging/build has made."""
import re
import shlex
import subprocess

import pytest

from conftest import BUILD, ROOT

FLOOR = (2, 28)
LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
ROW = re.compile(r"^//   (\w+) +(2\.\d+) ", re.M)


TRIPLET = {"amd64": "x86_64-linux-gnu-", "arm64": "aarch64-linux-gnu-"}[BUILD.parent.name]


def read(tool, *arguments, **more):
    tool = TRIPLET + tool if tool in ("nm", "readelf") else tool
    return subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, check=True, **more).stdout


@pytest.fixture(scope="module")
def binaries(prefix):
    assert (BUILD.parent / "sysroot").is_dir(), "%s is no tree of packaging/build" % BUILD
    found = [path for path in prefix.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    assert {"torchprof", "libtorchprof.so"} <= {path.name for path in found}
    return found


def wanted(binary):
    """[(symbol, version)] of all that is undefined and has a version."""
    listed = read("nm", "-D", "--undefined-only", "--with-symbol-versions", binary)
    return re.findall(r" [Uw] ([^@\s]+)@+(\S+)", listed)


def too_new(symbols):
    return [(name, version) for name, version in symbols
            if not (number := re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version)) or tuple(map(int, number.groups())) > FLOOR]


def test_no_symbol_is_newer_than_the_floor(binaries):
    for binary in binaries:
        symbols = wanted(binary)
        assert len(symbols) > 50 and too_new(symbols) == [], binary


def test_symbols_that_are_too_new_are_told_from_others():
    assert too_new([("a", "GLIBC_2.2.5"), ("b", "GLIBC_2.28"), ("c", "GLIBC_2.29"), ("d", "GLIBC_2.4"), ("e", "GLIBCXX_3.4"), ("f", "GLIBC_3.0"),
                    ("g", "GLIBC_PRIVATE")]) == [("c", "GLIBC_2.29"), ("e", "GLIBCXX_3.4"), ("f", "GLIBC_3.0"), ("g", "GLIBC_PRIVATE")]


def test_no_undefined_symbol_is_without_a_version(binaries):
    # But for weak ones: of transactional memory and of gprof, which nothing has.
    for binary in binaries:
        listed = read("nm", "-D", "--undefined-only", "--with-symbol-versions", binary)
        assert [line for line in listed.splitlines() if " U " in line and "@" not in line] == [], binary


def test_libraries_are_libcs_own(binaries):
    for binary in binaries:
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", read("readelf", "-d", binary)))
        assert "libc.so.6" in needed and needed <= LIBRARIES, binary


def listed_symbols():
    return dict(ROW.findall((ROOT / "tracer" / "libc" / "old_libc.h").read_text()))


def test_what_is_replaced_is_listed():
    archives = sorted((BUILD / "tracer" / "libc").glob("*.a"))
    assert len(archives) == 2
    defined = {name for archive in archives for name in re.findall(r" [A-TV-Z] (\w+)$", read("nm", archive), re.M)}
    assert {name for name in defined if not name.startswith(("_Z", "torchprof_"))} == set(listed_symbols())


def test_what_is_listed_is_wanted_by_what_is_linked_in(tmp_path):
    """Links both again and has the linker name the files that refer to each symbol."""
    symbols = listed_symbols()
    referring = {name: set() for name in symbols}
    for target in ("launcher/torchprof", "inject/libtorchprof.so"):
        command = read("ninja", "-C", BUILD, "-t", "commands", target).splitlines()[-1]
        trace = " ".join("-Wl,-y," + name for name in symbols)
        done = subprocess.run("%s %s -o %s" % (command, trace, shlex.quote(str(tmp_path / "linked"))), shell=True, cwd=BUILD, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for file, name in re.findall(r"^\S*?: (.*): reference to (\w+)$", done.stdout + done.stderr, re.M):
            if "old_lib" not in file:
                referring[name].add(file)
    assert [name for name, files in referring.items() if not files] == []
    assert all(version > FLOOR for version in (tuple(map(int, text.split("."))) for text in symbols.values()))
