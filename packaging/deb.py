#!/usr/bin/env python3
"""usage: deb.py TREE ARCH DIRECTORY: torchprof_VERSION_ARCH.deb of an installed tree, for Debian 11 and Ubuntu 20.04 and all later ones."""
import pathlib
import re
import subprocess
import sys
import tempfile

import archive

CONTROL = """Package: torchprof
Version: {version}
Section: devel
Priority: optional
Architecture: {architecture}
Maintainer: The torchprof developers <torchprof@localhost>
Installed-Size: {kilobytes}
Depends: libc6 (>= 2.28)
Suggests: python3-torch
Description: {summary}
 torchprof run python train.py records operators, Python functions, modules,
 allocations and GPU work of a command and of all that it starts, and writes a
 trace for Perfetto and tables. The program is not changed.
"""
# Tags of lintian that are meant so.
OVERRIDES = """# The project has no address for mail.
torchprof: bogus-mail-host *
torchprof: bogus-mail-host-in-debian-changelog *
# One package for all releases of Debian: it cannot depend on libraries whose versions differ.
torchprof: embedded-library *
"""
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: torchprof

Files: *
Copyright: 2026 The torchprof developers
License: Apache-2.0
 See /usr/share/common-licenses/Apache-2.0.
Comment: What is linked in statically is listed, with its licences, in /usr/share/doc/torchprof/NOTICE and sbom.spdx.json.
"""


def changelog():
    stamp = subprocess.run(["date", "-u", "-R", "-d", "@%d" % archive.epoch()], check=True, capture_output=True, text=True).stdout.strip()
    return "torchprof (%s) unstable; urgency=medium\n\n  * CHANGELOG.md of the sources has what is new.\n\n -- The torchprof developers <torchprof@localhost>  %s\n" % (
        archive.version(), stamp)


def contents(tree):
    files = {}
    for name, (data, is_program) in archive.files_of(tree).items():
        name = "usr/" + name
        if re.search(r"/man/man\d/", name):
            name, data = name + ".gz", archive.compressed(data)
        if name.startswith("usr/share/zsh/site-functions/"):
            name = name.replace("site-functions", "vendor-completions")
        if name == "usr/share/doc/torchprof/LICENSE":
            continue  # Debian has it in /usr/share/common-licenses
        files[name] = (data, is_program)
    files["usr/share/doc/torchprof/copyright"] = (COPYRIGHT.encode(), False)
    files["usr/share/doc/torchprof/changelog.gz"] = (archive.compressed(changelog().encode()), False)
    files["usr/share/lintian/overrides/torchprof"] = (OVERRIDES.encode(), False)
    return files


def main():
    if len(sys.argv) != 4 or sys.argv[2] not in archive.MACHINES:
        sys.exit(__doc__)
    tree, architecture, directory = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    files = contents(tree)
    directory.mkdir(parents=True, exist_ok=True)
    out = directory / ("torchprof_%s_%s.deb" % (archive.version(), architecture))
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch) / "root"
        for name, (data, is_program) in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o755 if is_program else 0o644)
        for made in [root, *root.rglob("*")]:
            if made.is_dir():
                made.chmod(0o755)
        sums = ["%s  %s\n" % (subprocess.run(["md5sum", root / n], check=True, capture_output=True, text=True).stdout.split()[0], n)
                for n in sorted(files)]
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN").chmod(0o755)
        size = sum((len(data) + 1023) // 1024 for data, _ in files.values())
        control = CONTROL.format(version=archive.version(), architecture=architecture, kilobytes=size, summary=archive.SUMMARY)
        for name, text in ("control", control), ("md5sums", "".join(sums)):
            (root / "DEBIAN" / name).write_text(text)
            (root / "DEBIAN" / name).chmod(0o644)
        # dpkg-deb takes the time of files and of the archive from SOURCE_DATE_EPOCH, and sorts.
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, out], check=True, stdout=subprocess.DEVNULL,
                       env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SOURCE_DATE_EPOCH": str(archive.epoch())})
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
