"""What `meson install` installs beside the program; tests/packages/test_completions.py types into the shells themselves."""
import subprocess

import pytest

from conftest import PATIENCE

pytestmark = pytest.mark.once

TYPED = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_torchprof
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("words, wanted", [
    (["report", "-t", "ops,mo"], ["ops,modules"]),
    (["export", "--format", "memory-t"], ["memory-timeline", "memory-timeline-raw", "memory-timeline-html"]),
    (["diff", "--metric", "=", "me"], ["memory"]),
    (["report", "-g", "s"], ["shape", "stack:"]),
    (["ctl", "4711", "st"], ["start", "stop", "status", "steps="]),
], ids=str)
def test_the_installed_tree_completes_lists_and_what_goes_with_an_option(prefix, words, wanted):
    done = subprocess.run(["bash", "-c", TYPED, "bash", prefix / "share/bash-completion/completions/torchprof", "torchprof", *words],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout.split(), done.stderr) == (wanted, "")
    assert (prefix / "share/zsh/site-functions/_torchprof").is_file() and (prefix / "share/fish/vendor_completions.d/torchprof.fish").is_file()
