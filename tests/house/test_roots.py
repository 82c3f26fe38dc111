"""The Debian roots: where they come from, and that a machine that cannot have them says so and goes on."""
import importlib.util
import os
import subprocess
import sys

import pytest

from conftest import ROOT

SCRIPT = ROOT / "tests" / "roots" / "roots.py"
spec = importlib.util.spec_from_file_location("roots", SCRIPT)
roots = importlib.util.module_from_spec(spec)
spec.loader.exec_module(roots)
import mirror  # noqa: E402: roots.py says where it lies

DEB822 = """\
# deb cdrom:[Debian] bookworm main
Types: deb
# https://snapshot.example/old
URIs: %s
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
"""
ONE_LINE = "deb [arch=amd64 trusted=yes] %s bookworm main contrib\ndeb http://mirror.example/security bookworm-security main\n"
SOURCES = {
    "deb822": ({"sources.list.d/debian.sources": DEB822 % "http://mirror.example/debian"}, "http://mirror.example/debian"),
    "one line": ({"sources.list": ONE_LINE % "http://mirror.example/debian"}, "http://mirror.example/debian"),
    "others before it": ({"sources.list": "", "sources.list.d/a.list": "deb https://other.example nodistro main\n",
                          "sources.list.d/z.list": "# deb http://not.example bookworm main\n" + ONE_LINE % "https://mirror.example/debian"},
                         "https://mirror.example/debian"),
    "switched off": ({"sources.list.d/debian.sources": "Enabled: no\n" + DEB822.partition("\n")[2] % "http://not.example"},
                     mirror.FALLBACK_MIRROR),
    "source packages alone": ({"sources.list": "deb-src http://mirror.example/debian bookworm main\n"}, mirror.FALLBACK_MIRROR),
    "a disc": ({"sources.list": ONE_LINE % "cdrom:[Debian]/"}, mirror.FALLBACK_MIRROR),
    "nothing": ({}, mirror.FALLBACK_MIRROR),
}


@pytest.mark.parametrize("case", SOURCES)
def test_the_mirror_is_the_one_that_apt_uses(tmp_path, case):
    files, expected = SOURCES[case]
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_CODENAME=bookworm\n')
    (tmp_path / "apt" / "sources.list.d").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "apt" / name).write_text(text)
    assert mirror.find_mirror(tmp_path) == expected


def test_a_root_that_cannot_be_made_is_said_loudly(tmp_path):
    """Whoever runs this: /proc takes no directories."""
    done = subprocess.run([sys.executable, SCRIPT, "trixie", tmp_path], env={**os.environ, "TORCHPROF_ROOTS": "/proc/roots"},
                          capture_output=True, text=True)
    assert done.returncode == roots.NOT_MADE
    assert "*** NOT TESTED on Debian trixie: its root cannot be made: " in done.stderr
