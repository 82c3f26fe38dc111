#!/usr/bin/env python3
"""usage: completions.py LAUNCHER DIRECTORY: completions for bash, zsh and fish, made of what `torchprof help` says.

    DIRECTORY/bash-completion/completions/torchprof
    DIRECTORY/zsh/site-functions/_torchprof
    DIRECTORY/fish/vendor_completions.d/torchprof.fish

They complete subcommands, options, values of options that take one of few or a list of some (ops,memory), what `ctl` is to do, and behind that files;
after the options of `run` a command. Without DIRECTORY they are written below the prefix that `meson install` installs into.
"""
import os
import pathlib
import re
import subprocess
import sys


def said(launcher, *arguments):
    return subprocess.run([launcher, "help", *arguments], check=True, capture_output=True, text=True).stdout


class Option:
    def __init__(self, names, value, meaning):
        self.names, self.takes_value = names, bool(value)
        self.meaning = re.split(r"; | \[|: (?=[\w-]+, )", meaning)[0]
        self.is_list = "[," in value  # T[,T]
        few = re.fullmatch(r"[a-z0-9]+(\|[a-z0-9]+)+", value.partition("[")[0])
        # "which tables: ops, kernels, calls", "...: shape, module, stack:N"
        listed = re.search(r": ((?:[\w-]+, ?)+[\w-]+(:N)?)$", meaning)
        self.values = few[0].split("|") if few else re.split(", ?", re.sub("N$", "", listed[1])) if listed and value else []


def options_of(text):
    """Of the help's list: '  -t,--tables T[,T]                 which tables:', with lines of more words below."""
    found = re.findall(r"^  ((?:-[\w-]+,?)+)(?: (\S+))? *(.*(?:\n {10,}\S.*)*)$", text.partition("\nOptions:")[2], re.MULTILINE)
    return [Option(names.split(","), value, re.sub(r"\s+", " ", meaning).strip()) for names, value, meaning in found]


def read(launcher):
    """([(subcommand, what it does, its options)], without those that are written with dashes, and what `ctl` is to do)."""
    overview = said(launcher)
    names = re.findall(r"^  (\w+) +(.+)$", overview, re.MULTILINE)
    subcommands = [(name, meaning, options_of(said(launcher, name)) if name != "help" else []) for name, meaning in names]
    by_name = {(name, option): o for name, _, options in subcommands for o in options for option in o.names}
    formats = [f for f in by_name["export", "--format"].values if f != "parquet"]  # which `export` alone writes
    for name in ("run", "attach", "merge"):
        by_name[name, "--format"].values = [*formats, "none"]
    for option in ("--sort", "--columns"):
        more = ["self", "total", "average"] if option == "--sort" else ["all"]
        by_name["report", option].values = list(dict.fromkeys(columns(said(launcher, "report")) + more))
    usage = said(launcher, "ctl").partition("\n")[0].split()[-1]  # "start|stop|steps=N..M"
    return subcommands, [re.sub("=.*", "=", verb) for verb in usage.split("|")]


def columns(text):
    """The keys of all tables' columns, from the list at the end of the help."""
    lists = re.findall(r"^  \w+:((?:\s+\w+(?!\w*:))+)", text.partition("\nColumns ")[2], re.MULTILINE)
    return [key for each in lists for key in each.split()]


def bash(subcommands, verbs):
    cases, values, taking = [], [], []
    for name, _, options in subcommands:
        cases.append('        %s) options="%s" ;;' % (name, " ".join(n for o in options for n in o.names)))
        for o in options:
            if o.values:
                values.append('        %s) words="%s"%s ;;' % ("|".join("%s:%s" % (name, n) for n in o.names), " ".join(o.values),
                                                                " list=1" if o.is_list else ""))
            if o.takes_value:
                taking += ["%s:%s" % (name, n) for n in o.names]
    return """# Completion of torchprof for bash. Made of `torchprof help`.
_torchprof() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} subcommand=${COMP_WORDS[1]} options words list= i
    COMPREPLY=()
    # --option=value is three words to bash.
    if [ "$word" = = ]; then
        word=
    elif [ "$before" = = ]; then
        before=${COMP_WORDS[COMP_CWORD-2]}
    fi
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "@NAMES@ --version" -- "$word"))
        return
    fi
    words=
    case $subcommand:$before in
@VALUES@
    esac
    if [ -n "$list" ] && [[ $word == *,* ]]; then  # ops,mem
        COMPREPLY=($(compgen -P "${word%,*}," -W "$words" -- "${word##*,}"))
        return
    elif [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
        return
    fi
    if [ "$subcommand:$COMP_CWORD" = ctl:3 ] && [[ $word != -* ]]; then
        COMPREPLY=($(compgen -W "@VERBS@" -- "$word"))
        [[ ${COMPREPLY[*]} != *= ]] || compopt -o nospace 2>/dev/null
        return
    fi
    case $subcommand in
@CASES@
        help)
            COMPREPLY=($(compgen -W "@NAMES@" -- "$word"))
            return ;;
    esac
    if [ "$subcommand" = run ]; then
        # Behind the first word that is neither an option nor an option's value, the command's own completion takes over.
        for ((i = 2; i < COMP_CWORD; ++i)); do
            case run:${COMP_WORDS[i]} in
                @TAKING@) ((++i)) ;;
                run:--) ((++i)); break ;;
                run:-*) ;;
                *) break ;;
            esac
        done
        if [ "$i" -lt "$COMP_CWORD" ] && declare -F _command_offset >/dev/null; then
            _command_offset "$i"
            return
        elif [ "$i" = "$COMP_CWORD" ] && [[ $word != -* ]]; then
            COMPREPLY=($(compgen -c -- "$word"))
            return
        fi
    fi
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    else
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}
complete -F _torchprof torchprof
""".replace("@VERBS@", " ".join(verbs)).replace("@NAMES@", " ".join(n for n, _, _ in subcommands)).replace("@VALUES@", "\n".join(values) or "        *) ;;").replace(
        "@CASES@", "\n".join(c for c in cases if not c.startswith("        help)"))).replace(
        "@TAKING@", "|".join(t for t in taking if t.startswith("run:")))


def quoted(text):
    """In single quotes, for zsh's _arguments, where brackets and colons mean something."""
    return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh(subcommands, verbs):
    lines = ["#compdef torchprof", "# Completion of torchprof for zsh. Made of `torchprof help`.", "", "_torchprof() {", "  local -a subcommands",
             "  subcommands=("]
    lines += ["    '%s:%s'" % (name, quoted(meaning)) for name, meaning, _ in subcommands]
    lines += ["  )", "  if (( CURRENT == 2 )); then", "    _describe subcommand subcommands", "    return", "  fi",
              "  local subcommand=$words[2]", "  shift words", "  (( CURRENT-- ))", "  case $subcommand in"]
    for name, _, options in subcommands:
        arguments = []
        for o in options:
            words = " ".join(w.replace(":", "\\:") for w in o.values)
            value = ":value:_values -s , value %s" % words if o.is_list and words else ":value:(%s)" % words if words else \
                ":value:_files" if o.takes_value else ""
            for n in o.names:
                arguments.append("'%s[%s]%s'" % (n, quoted(o.meaning), value))
        # The command that `run` starts has its own completion.
        rest = ["'(-)1:command:_command_names -e'", "'*::arguments:_normal'"] if name == "run" else \
            ["'1:file:_files'", "'2:what to do:compadd -S \"\" -- %s'" % " ".join(verbs)] if name == "ctl" else ["'*:file:_files'"]
        if name == "help":
            lines.append("    help) _describe subcommand subcommands ;;")
        else:
            lines.append("    %s) _arguments -S \\\n      %s ;;" % (name, " \\\n      ".join(arguments + rest)))
    return "\n".join([*lines, "  esac", "}", "", '_torchprof "$@"', ""])


def fish(subcommands, verbs):
    def text(words):
        return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"
    names = " ".join(name for name, _, _ in subcommands)
    lines = ["# Completion of torchprof for fish. Made of `torchprof help`.",
             "complete -c torchprof -f -n 'not __fish_seen_subcommand_from %s' -l version -d 'the version'" % names]
    for name, meaning, options in subcommands:
        lines.append("complete -c torchprof -f -n 'not __fish_seen_subcommand_from %s' -a %s -d %s" % (names, name, text(meaning)))
        for o in options:
            parts = ["complete -c torchprof -n '__fish_seen_subcommand_from %s'" % name]
            parts += ["-l %s" % n[2:] if n.startswith("--") else "-s %s" % n[1:] for n in o.names]
            if o.values and o.is_list:
                parts.append("-x -a %s" % text("(__fish_complete_list , 'printf \"%%s\\n\" %s')" % " ".join(o.values)))
            elif o.values:
                parts.append("-x -a %s" % text(" ".join(o.values)))
            elif o.takes_value:
                parts.append("-r")
            lines.append(" ".join(parts + ["-d " + text(o.meaning)]))
    lines.append("complete -c torchprof -n '__fish_seen_subcommand_from run' -a '(__fish_complete_subcommand --fcs-skip=2)'")
    lines.append("complete -c torchprof -f -n '__fish_seen_subcommand_from help' -a %s" % text(names))
    lines.append("complete -c torchprof -f -n '__fish_seen_subcommand_from ctl; and test (count (commandline -opc)) -eq 3' -a %s" % text(" ".join(verbs)))
    return "\n".join(lines) + "\n"


def main():
    prefix = os.environ.get("MESON_INSTALL_DESTDIR_PREFIX")  # of a script that `meson install` runs
    if len(sys.argv) != 3 and not (len(sys.argv) == 2 and prefix):
        sys.exit(__doc__)
    directory = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else prefix + "/share")
    subcommands, verbs = read(sys.argv[1])
    for path, make in (("bash-completion/completions/torchprof", bash), ("zsh/site-functions/_torchprof", zsh),
                       ("fish/vendor_completions.d/torchprof.fish", fish)):
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(make(subcommands, verbs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
