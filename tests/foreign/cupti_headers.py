#!/usr/bin/env python3
"""The table of CUPTI's records (cupti/cupti_abi.h) beside CUPTI's own headers, those of each wheel that NVIDIA has on PyPI.

    tests/foreign/cupti_headers.py [VERSION...]

VERSION is that of a wheel: nvidia-cuda-cupti-cu12 for 12.x, nvidia-cuda-cupti for 13.x; without any, those in VERSIONS. `pip download` fetches
them into torchprof-wheels in $XDG_CACHE_HOME or ~/.cache, 10 to 20 MB each, and the headers of CUDA that they include.

What is compared is what tests/unit/cupti/cupti_layout_test.cpp names, in the newest struct of each kind that a header has: a field lies where the
table says and came in the version that it says, and the kinds and errors have their numbers. And the calls that --gpu on records (cupti/
recorded_calls.cpp) have their names there. Prints one line a version, and each difference. The exit status is 1 where there is one.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEST = ROOT / "tests" / "unit" / "cupti" / "cupti_layout_test.cpp"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "torchprof-wheels"
VERSIONS = ["12.2.142", "12.3.101", "12.4.127", "12.5.82", "12.6.80", "12.8.90", "12.9.79", "13.0.85", "13.1.115", "13.2.86", "13.3.75", "13.4.92", "13.5.25"]
CHECK = """
#include <cupti.h>
#include <cstddef>
#include <cstdio>
#include <type_traits>
#include "cupti/cupti_abi.h"
namespace abi = torchprof::cupti::abi;
int fields = 0, differ = 0;
void check(const char* name, abi::Field field, bool has, size_t at) {
  ++fields;
  const bool is_in = field.since <= CUPTI_API_VERSION;
  if (has == is_in && (!has || at == field.at)) return;
  ++differ;
  std::printf("  %s: %s at %zu; the table has %u, since %u\\n", name, has ? "is" : "is not there, or", at, field.at, field.since);
}
#define FIELD(Struct, member, top, field) \\
  check(#Struct "." #member, abi::field, [](auto* s) { return requires { s->top; }; }(static_cast<Struct*>(nullptr)), \\
        [](auto* s) -> size_t { if constexpr (requires { s->top; }) return offsetof(std::remove_pointer_t<decltype(s)>, member); else return 0; }(static_cast<Struct*>(nullptr)));
#define NUMBER(ours, theirs) \\
  if (++fields; static_cast<long>(ours) != static_cast<long>(theirs)) ++differ, std::printf("  " #theirs " is %ld\\n", static_cast<long>(theirs));
int main() {
  ROWS
  std::printf("version %u, %d compared, %d differ\\n", static_cast<unsigned>(CUPTI_API_VERSION), fields, differ);
  return differ != 0;
}
"""


def unpacked(requirement):
    """The folder with the headers of a wheel."""
    place = CACHE / requirement.replace("==", "-").replace(".*", "")
    if not place.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", temporary, requirement], check=True)
            wheel, = pathlib.Path(temporary).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if "/include/" in name:
                        archive.extract(name, pathlib.Path(temporary) / "headers")
            (pathlib.Path(temporary) / "headers").rename(place)
    return next(place.rglob("include"))


def rows(include):
    text = "".join((include / name).read_text() for name in ("cupti_activity.h", "cupti_activity_deprecated.h") if (include / name).exists())
    structs = set(re.findall(r"}\s*(CUpti_Activity\w+);", text))
    test = TEST.read_text()
    aliases = dict(re.findall(r"using (\w+) = (\w+);", test))
    named = {(aliases.get(struct, struct), member, field) for struct, member, field in re.findall(r"SAME\((\w+),\s*([\w.]+),\s*([\w:]+)\)", test) if struct != "Struct"}
    for struct, member, field in sorted(named):
        kind = re.sub(r"\d+$", "", struct)
        newest = max((name for name in structs if re.fullmatch(kind + r"\d*", name)), key=lambda name: int(name[len(kind):] or 1))
        yield "FIELD(%s, %s, %s, %s)" % (newest, member, member.split(".")[0], field)
    for ours, theirs in re.findall(r"uint32_t\{abi::(\w+)\} == (\w+)", test) + re.findall(r"abi::(k\w+) == (CUPTI_ERROR\w+)", test):
        yield "NUMBER(abi::%s, %s)" % (ours, theirs)


def other_names(include):
    """The calls that --gpu on records whose numbers have another name in these headers; a number without a name is one of later or earlier versions."""
    ours = re.findall(r'\{k(Runtime|Driver), (\d+), "(\w+)"', (ROOT / "cupti" / "recorded_calls.cpp").read_text())
    assert len(ours) > 300
    for api in "Runtime", "Driver":
        text = (include / ("cupti_%s_cbid.h" % api.lower())).read_text()
        theirs = {int(number): name for name, number in re.findall(r"CUPTI_%s_TRACE_CBID_(\w+?)\s*=\s*(\d+)" % api.upper(), text)}
        for number, name in ((int(number), name) for of, number, name in ours if of == api):
            found = re.sub(r"_v\d{4,5}$", "", theirs.get(number, name))
            # CUDA 13 dropped the _v2 of some, and SIZE is one more than the last.
            if found.replace("_v2", "") != name.replace("_v2", "") and not re.fullmatch(r"SIZE|(?:cuda|reserved)%d" % number, found):
                yield "  %s %d is %s; recorded_calls.cpp has %s" % (api, number, found, name)


def compare(version):
    major, minor, _ = version.split(".")
    of_major = "-cu12" if major == "12" else ""
    include, cuda = unpacked("nvidia-cuda-cupti%s==%s" % (of_major, version)), unpacked("nvidia-cuda-runtime%s==%s.%s.*" % (of_major, major, minor))
    with tempfile.TemporaryDirectory() as temporary:
        source, program = pathlib.Path(temporary) / "check.cpp", pathlib.Path(temporary) / "check"
        source.write_text(CHECK.replace("ROWS", "\n  ".join(rows(include))))
        subprocess.run(["g++", "-std=c++20", "-w", "-isystem", include, "-isystem", cuda, "-I", ROOT, source, "-o", program], check=True)
        done = subprocess.run([program], capture_output=True, text=True)
    *differences, last = done.stdout.splitlines()
    return last, differences + list(other_names(include))


def main():
    status = 0
    for version in sys.argv[1:] or VERSIONS:
        last, differences = compare(version)
        print("\n".join(["%s: %s" % (version, last), *differences]), flush=True)
        status = status or bool(differences)
    return status


if __name__ == "__main__":
    sys.exit(main())
