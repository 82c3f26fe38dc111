"""Where this machine has Debian's packages from: the mirror that its own apt uses, and the way to it.

Asks only files and `apt-config`. Used for the sysroots of releases (packaging/sysroot) and the roots of tests (tests/roots/roots.py).
"""
import os
import pathlib
import re
import shutil
import subprocess

FALLBACK_MIRROR = "http://deb.debian.org/debian"


def entries(text):
    """(types, URIs, suites) of each entry of a file of apt's sources, in either form."""
    if re.search(r"(?mi)^Types:", text):
        for stanza in re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n?", "", text)):
            fields = {name.lower(): value.split() for name, value in re.findall(r"(?m)^([\w-]+):((?:.*)(?:\n[ \t].*)*)", stanza)}
            if fields.get("enabled", ["yes"]) != ["no"]:
                yield fields.get("types", []), fields.get("uris", []), fields.get("suites", [])
    else:
        for kind, uri, suite in re.findall(r"(?m)^\s*(deb|deb-src)\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)", text):
            yield [kind], [uri], [suite]


def find_mirror(etc=pathlib.Path("/etc")):
    """Where this machine's apt has its own release from."""
    release = re.search(r"(?m)^VERSION_CODENAME=\"?(\w+)", (etc / "os-release").read_text())
    lists = etc / "apt" / "sources.list.d"
    for path in [etc / "apt" / "sources.list", *sorted(lists.glob("*.list")), *sorted(lists.glob("*.sources"))]:
        for types, uris, suites in entries(path.read_text()) if path.exists() else ():
            for uri in uris:
                if release and release[1] in suites and "deb" in types and re.match("https?://", uri):
                    return uri
    return FALLBACK_MIRROR


def environment(**more):
    """What apt in another root needs of the environment: the way to the network."""
    kept = {name: value for name, value in os.environ.items() if name.lower() in ("http_proxy", "https_proxy", "no_proxy")}
    if "http_proxy" not in kept and shutil.which("apt-config"):
        asked = subprocess.run(["apt-config", "shell", "proxy", "Acquire::http::Proxy"], capture_output=True, text=True).stdout
        if proxy := re.search(r"proxy='(.+)'", asked):
            kept["http_proxy"] = proxy[1]
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **kept, **more}
