#!/usr/bin/env python3
"""usage: wheel.py TREE ARCH DIRECTORY: the wheel of an installed tree (packaging/build).

No back end takes a tree that is built already, so this follows the specification itself: packaging.python.org/en/latest/specifications/
binary-distribution-format. The program is a script of the wheel, so that `torchprof` starts no Python; its library and the rest are the
wheel's data, which pip puts beside it: PREFIX/bin/torchprof, PREFIX/lib/torchprof. Nothing of it runs when Python starts.
"""
import base64
import hashlib
import pathlib
import re
import sys
import time
import zipfile

import archive

METADATA = """Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: {summary}
License: Apache-2.0
License-File: LICENSE
License-File: NOTICE
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Topic :: Software Development :: Debuggers
Requires-Python: >=3.8
Description-Content-Type: text/markdown

"""
# glibc 2.28: what packaging/sysroot and tracer/libc/old_libc.h see to.
TAG = "py3-none-manylinux_2_28_"
# As names of files have the distribution and its version.
PREFIX = archive.DISTRIBUTION.replace("-", "_") + "-%s"
# What runs a command by the name of its distribution (`uvx torchprof-cli`, `pipx run torchprof-cli`) finds this one. uv puts the environment of a
# tool first on PATH, where `python3` is one without torch: the program's own comes after it.
BY_THE_NAME_OF_THE_DISTRIBUTION = b'''#!/bin/sh
here=$(dirname -- "$(readlink -f -- "$0")")
[ -z "${UV:-}" ] || [ "${VIRTUAL_ENV:-}/bin" = "$here" ] || PATH=${PATH#"$here":}
exec "$here/torchprof" "$@"
'''
# What a package manager of Python has no place for.
LEFT_OUT = ("share/doc/",)


def contents(tree, architecture):
    """{name in the wheel: (bytes, is it a program)}, all but RECORD."""
    version = archive.version()
    data, info = PREFIX % version + ".data/", PREFIX % version + ".dist-info/"
    files = {}
    for name, entry in archive.files_of(tree).items():
        if name.startswith("bin/"):
            files[data + "scripts/" + name[len("bin/"):]] = entry
        elif not name.startswith(LEFT_OUT):
            files[data + "data/" + name] = entry
    files[data + "scripts/" + archive.DISTRIBUTION] = (BY_THE_NAME_OF_THE_DISTRIBUTION, True)
    for source in sorted(p for p in (archive.ROOT / "packaging" / "python").iterdir() if p.suffix in (".py", ".typed")):
        files["torchprof/" + source.name] = (source.read_bytes(), False)
    # The picture lies in the repository, where what shows this description does not look.
    readme = re.sub(r"(?s)<picture>.*?</picture>\n\n", "", (archive.ROOT / "README.md").read_text())
    documents = tree / "share" / "doc" / "torchprof"
    files[info + "METADATA"] = ((METADATA.format(name=archive.DISTRIBUTION, version=version, summary=archive.SUMMARY) + readme).encode(), False)
    files[info + "WHEEL"] = (("Wheel-Version: 1.0\nGenerator: torchprof\nRoot-Is-Purelib: false\nTag: %s%s\n"
                              % (TAG, archive.MACHINES[architecture])).encode(), False)
    files[info + "entry_points.txt"] = (b"[pytest11]\ntorchprof = torchprof.pytest_plugin\n", False)
    for name in "LICENSE", "NOTICE":
        files[info + "licenses/" + name] = ((documents / name).read_bytes(), False)
    files[info + "sboms/torchprof.spdx.json"] = ((documents / "sbom.spdx.json").read_bytes(), False)
    return files


def main():
    if len(sys.argv) != 4 or sys.argv[2] not in archive.MACHINES:
        sys.exit(__doc__)
    tree, architecture, directory = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    files = contents(tree, architecture)
    record = PREFIX % archive.version() + ".dist-info/RECORD"
    lines = []
    for name, (data, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append("%s,sha256=%s,%d\n" % (name, digest, len(data)))
    files[record] = ("".join([*lines, record + ",,\n"]).encode(), False)
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / ("%s-%s%s.whl" % (PREFIX % archive.version(), TAG, archive.MACHINES[architecture]))
    with zipfile.ZipFile(wheel, "w") as out:
        # The metadata comes last, as the specification advises.
        for name, (data, is_program) in sorted(files.items(), key=lambda item: (".dist-info/" in item[0], item[0])):
            entry = zipfile.ZipInfo(name, time.gmtime(archive.epoch())[:6])
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            entry.create_system = 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(entry, data, compresslevel=9)
    print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
