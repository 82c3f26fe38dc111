#!/usr/bin/env python3
"""usage: documents.py RELEASE: what the law and people who look after machines want to know of a release (build-release/amd64), in its
installed/share/doc/torchprof:

    LICENSE           the project's own
    NOTICE            whose work is linked in or compiled in, with its licences
    sbom.spdx.json    the same for machines: SPDX 2.3, with versions

Asks the linker which static libraries it took anything of, and ninja which headers were read, so that nothing can be forgotten: what is not in
COMPONENTS is an error. Versions are those of Debian's packages in RELEASE/packages (packaging/sysroot), and of the compiler here.
"""
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import time

import archive

# Upstream's name: where it is from, its licence (SPDX), Debian's package, and its static libraries and directories of headers.
COMPONENTS = {
    "libstdc++": ("https://gcc.gnu.org", "GPL-3.0-or-later WITH GCC-exception-3.1", "libstdc++-12-dev", ["libstdc++.a"], ["c++"]),
    "libgcc": ("https://gcc.gnu.org", "GPL-3.0-or-later WITH GCC-exception-3.1", "libgcc-12-dev", ["libgcc.a", "libgcc_eh.a"], []),
    "glibc": ("https://sourceware.org/glibc", "LGPL-2.1-or-later", "libc6-dev", ["libc_nonshared.a", "libpthread_nonshared.a"], []),
    "elfutils": ("https://sourceware.org/elfutils", "GPL-2.0-or-later OR LGPL-3.0-or-later", "libdw-dev", ["libdw.a", "libelf.a"], []),
    "zlib": ("https://zlib.net", "Zlib", "zlib1g-dev", ["libz.a"], []),
    "bzip2": ("https://sourceware.org/bzip2", "bzip2-1.0.6", "libbz2-dev", ["libbz2.a"], []),
    "liblzma": ("https://tukaani.org/xz", "LicenseRef-public-domain", "liblzma-dev", ["liblzma.a"], []),
    "sqlite": ("https://sqlite.org", "blessing", "libsqlite3-dev", ["libsqlite3.a"], []),
    "nlohmann-json": ("https://json.nlohmann.me", "MIT", "nlohmann-json3-dev", [], ["nlohmann"]),
    "CLI11": ("https://github.com/CLIUtils/CLI11", "BSD-3-Clause", "libcli11-dev", [], ["CLI"]),
    "Boost": ("https://www.boost.org", "BSL-1.0", "libboost1.81-dev", [], ["boost"]),
    "protozero": ("https://github.com/mapbox/protozero", "BSD-2-Clause", "libprotozero-dev", [], ["protozero"]),
}
# Declarations alone, which leave nothing of theirs in what is built.
ONLY_DECLARED = {"linux", "asm", "asm-generic", "bits", "sys", "gnu", "elfutils", "arpa", "net", "netinet", "rpc"}
# Of unit tests, which are not installed.
FOR_TESTS = {"doctest"}
COMMON_LICENSES = pathlib.Path("/usr/share/common-licenses")
OPENING = """torchprof is licensed under the Apache License 2.0 (LICENSE). Its programs contain parts of the works below, each under its own licence.

elfutils is used under the GNU Lesser General Public License, version 3 or later. Sources and build files of torchprof are public, and
packaging/build makes these programs of them, so that everybody may link them with a changed elfutils.
"""


def fail(text):
    sys.exit("documents.py: " + text)


def libraries_in(build, product):
    """Names of the static libraries outside of the build of which the linker takes anything."""
    command = subprocess.run(["ninja", "-C", build, "-t", "commands", "-s", product], check=True, capture_output=True, text=True).stdout
    words = [w for w in shlex.split(command.strip().split("\n")[-1]) if w not in ("&&", ":")]
    said = subprocess.run([*words, "-Wl,--trace,--trace", "-o", "/dev/null"], cwd=build, capture_output=True, text=True)
    if said.returncode:
        fail("linking %s again failed: %s" % (product, said.stderr.strip()))
    # Given twice, it names members: "(/usr/lib/libz.a)adler32.o".
    taken = re.findall(r"\(?([^\s()]+\.a)[)(][\w.+-]+\.o\)?", said.stdout)
    own = pathlib.Path(build).resolve()
    return {pathlib.Path(name).name for name in taken if own not in (own / name).resolve().parents}


def headers_in(build):
    """Names of the directories of headers outside of the project that were read: "nlohmann"."""
    listed = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"^ +\S*/usr/include/(?:[\w]+-linux-gnu/)?([\w+-]+)/", listed, re.MULTILINE)) - ONLY_DECLARED


def version_of(package, release):
    """Debian's version of a package that was built with."""
    if listed := re.search(r"(?m)^\S+ %s_(\S+)_\w+$" % re.escape(package), (release / "packages").read_text()):
        return listed[1].replace("%3a", ":")
    # What comes with the compiler: with that for another processor, where the release is for one.
    cross = "-%s-cross" % release.name if release.name != this_architecture() else ""
    said = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package + cross], capture_output=True, text=True)
    if said.returncode:
        fail("the version of %s is not known: %s" % (package, said.stderr.strip()))
    return said.stdout.partition("cross")[0]


def this_architecture():
    return subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()


def upstream(version):
    return re.sub(r"^\d+:", "", version).rpartition("-")[0] or version


def licence_text(package, release):
    """As Debian has it; the compiler's parts have theirs in one place."""
    name = "gcc-12-base" if package in ("libstdc++-12-dev", "libgcc-12-dev") else package
    for root in release / "sysroot", pathlib.Path("/"):
        if (path := root / "usr/share/doc" / name / "copyright").exists():
            return path.read_text().strip()
    fail("the licence of %s is not there" % package)


def notice(used, release):
    rule = "\n" + "-" * 120 + "\n"
    parts = [OPENING]
    texts = {}
    for name in used:
        texts.setdefault(licence_text(COMPONENTS[name][2], release), []).append(name)
    parts += ["%s (%s)\n\n%s\n" % (", ".join(names), COMPONENTS[names[0]][1], text) for text, names in texts.items()]
    parts += ["%s\n\n%s\n" % (name, (COMMON_LICENSES / name).read_text().strip()) for name in ("LGPL-3", "GPL-3", "LGPL-2.1")]
    return rule.join(parts)


def sbom(used, tree, release):
    version = archive.version()
    digest = hashlib.sha256(b"".join(data for _, (data, _) in sorted(archive.files_of(tree).items()))).hexdigest()

    def package(name, number, licence, home, **more):
        return {"SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name), "name": name, "versionInfo": number, "downloadLocation": home or "NOASSERTION",
                "filesAnalyzed": False, "licenseConcluded": licence, "licenseDeclared": licence, "copyrightText": "NOASSERTION", **more}

    packages = [package("torchprof", version, "Apache-2.0", None, primaryPackagePurpose="APPLICATION")]
    for name in used:
        home, licence, debian, _, _ = COMPONENTS[name]
        number = version_of(debian, release)
        packages.append(package(name, upstream(number), licence, home, externalRefs=[
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": "pkg:deb/debian/%s@%s" % (debian, number)}]))
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-torchprof"}]
    relations += [{"spdxElementId": "SPDXRef-torchprof", "relationshipType": "STATIC_LINK" if COMPONENTS[p["name"]][3] else "CONTAINS",
                   "relatedSpdxElement": p["SPDXID"]} for p in packages[1:]]
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "torchprof-" + version,
            "documentNamespace": "https://spdx.org/spdxdocs/torchprof-%s-%s" % (version, digest),
            "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(archive.epoch())),
                             "creators": ["Tool: torchprof-packaging-" + version]},
            "hasExtractedLicensingInfos": [{"licenseId": "LicenseRef-public-domain", "name": "Public domain", "extractedText": "This work is in the public domain."}],
            "packages": packages, "relationships": relations}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    release = pathlib.Path(sys.argv[1])
    build, tree = release / "build", release / "installed"
    libraries = libraries_in(build, "launcher/torchprof") | libraries_in(build, "inject/libtorchprof.so")
    headers = headers_in(build)
    used = [name for name, (_, _, _, archives, directories) in COMPONENTS.items() if libraries & {*archives} or headers & {*directories}]
    known = {name for _, _, _, archives, directories in COMPONENTS.values() for name in [*archives, *directories]}
    if unknown := (libraries | headers) - known - FOR_TESTS:
        fail("%s: taken in, and no licence is known of it (COMPONENTS)" % ", ".join(sorted(unknown)))
    documents = tree / "share" / "doc" / "torchprof"
    documents.mkdir(parents=True, exist_ok=True)
    bill = json.dumps(sbom(used, tree, release), indent=1) + "\n"
    (documents / "sbom.spdx.json").write_text(bill)
    (documents / "NOTICE").write_text(notice(used, release))
    (documents / "LICENSE").write_text((archive.ROOT / "LICENSE").read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
