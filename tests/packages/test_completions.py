"""Completion in the shells themselves."""
import subprocess

import pytest

from artefacts import tree  # noqa: F401
from conftest import PATIENCE


CASES = {
    "a subcommand": ("torchprof rep", "report"),
    "an option": ("torchprof report --top-l", "--top-level"),
    "an option's value": ("torchprof run --python mod", "modules"),
    "a table": ("torchprof report -t crit", "critical"),
    "a subcommand to explain": ("torchprof help doc", "doctor"),
    "the second of a list": ("torchprof report -t ops,mo", "ops,modules"),
    "the third of a list": ("torchprof report -t ops,modules,mem", "ops,modules,memory"),
    "a column": ("torchprof report --sort self_cpu_n", "self_cpu_ns"),
    "a format to export": ("torchprof export -f spe", "speedscope"),
    "formats to export": ("torchprof export -f sqlite,pprof,spe", "sqlite,pprof,speedscope"),
    "a format to write": ("torchprof run --format kineto,sq", "kineto,sqlite"),
    "a metric": ("torchprof diff --metric alloc", "allocated"),
    "what operators are grouped by": ("torchprof report --group-by sh", "shape"),
    "what becomes of native frames": ("torchprof export --native-frames fo", "folded"),
    "what ctl is to do": ("torchprof ctl 4711 cap", "capture"),
    "which steps ctl is to record": ("torchprof ctl 4711 ste", "steps="),
}
BASH = """
source "$1/bash-completion/completions/torchprof"
COMP_LINE=$2; COMP_POINT=${#2}
read -ra COMP_WORDS <<<"$2"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_torchprof
printf '%s\\n' "${COMPREPLY[@]}"
"""
# In a terminal of its own: zsh completes only while it edits a line.
ZSH = """
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "fpath=($1/zsh/site-functions \\$fpath); autoload -Uz compinit; compinit -u -D; bindkey '^I' complete-word; unsetopt zle_bracketed_paste; PS1='> '; echo REA''DY"
zpty -r -m z out '*READY*'
zpty -w -n z "$2"$'\\t'$'\\C-a'": '"$'\\C-e'"'; echo EN''D"$'\\n'
zpty -r -m z out '*END*'
print -r -- $out
"""


@pytest.mark.parametrize("case", CASES)
def test_bash(tree, case):
    typed, wanted = CASES[case]
    done = subprocess.run(["bash", "-c", BASH, "bash", tree / "share", typed], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.split() == [wanted], done.stderr


@pytest.mark.parametrize("case", CASES)
def test_fish(tree, case, tmp_path):
    typed, wanted = CASES[case]
    script = "set fish_complete_path %s/share/fish/vendor_completions.d; complete -C'%s'" % (tree, typed)
    done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=PATIENCE, env={"HOME": str(tmp_path), "PATH": "%s/bin:/usr/bin:/bin" % tree})
    assert wanted in [line.split("\t")[0] for line in done.stdout.splitlines()], done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES)
def test_zsh(tree, case):
    typed, wanted = CASES[case]
    done = subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", tree / "share", typed], capture_output=True, text=True, timeout=PATIENCE)
    assert wanted in done.stdout, done.stdout + done.stderr


def test_each_shell_reads_its_file(tree):
    for command in (["bash", "-n", tree / "share/bash-completion/completions/torchprof"], ["zsh", "-n", tree / "share/zsh/site-functions/_torchprof"],
                    ["fish", "-n", tree / "share/fish/vendor_completions.d/torchprof.fish"]):
        assert subprocess.run(command, capture_output=True, text=True).stderr == ""
