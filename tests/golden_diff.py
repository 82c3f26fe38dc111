#!/usr/bin/env python3
"""Shows which records of golden dumps differ: what a digest (tests/unit/golden/**/*.digest) keeps as sums and hashes alone.

    tests/golden_diff.py HEAD build              what the working tree, as it is built in build/, makes otherwise than the last commit
    tests/golden_diff.py HEAD~3 HEAD             two commits
    tests/golden_diff.py before build            the same, with what a test program wrote to before/ under TORCHPROF_DUMP_GOLDEN=before
    tests/golden_diff.py HEAD build -k matmul    the dumps with "matmul" in their names

usage: golden_diff.py OLD NEW [-k NAME] [--most N]

OLD and NEW are each a build folder of Meson, a folder of dumps (NAME.txt), or a commit. In a build folder the unit tests that have dumps are built
(`ninja`, those alone) and run. A commit is first checked out and configured in a temporary folder, which takes a minute.
Of a record that changed, each field that did is printed with both values; -, + mark those that only one side has. The exit status is that of diff:
0 the same, 1 something differs, 2 trouble.
"""
import argparse
import collections
import contextlib
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIELD = re.compile(r"([^\s=]+)=(-?\d+)$")
DUMPS = "check_digest("  # which tests have dumps: those that call it


class Trouble(Exception):
    """What the user is told, and nothing more."""


def run(command, **more):
    """What it wrote; told to the user if it failed."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        raise Trouble("%s failed:\n%s" % (" ".join(map(str, command)), done.stdout[-4000:]))
    return done.stdout


def sources_of(target):
    """The files that a target is compiled of. Where they are compiled as one (Meson's unity), that names them."""
    for group in target["target_sources"]:
        yield from map(pathlib.Path, group.get("sources", []))
        for generated in map(pathlib.Path, group.get("generated_sources", [])):
            if re.search(r"-unity\d+\.cpp$", generated.name) and generated.exists():
                yield from (pathlib.Path(os.path.realpath(name)) for name in re.findall(r"(?m)^#include<(.*)>$", generated.read_text()))


def programs(build):
    """[(test program, its source file)] of the tests that have dumps, whatever the programs are called."""
    source = pathlib.Path(json.loads((build / "meson-info" / "meson-info.json").read_text())["directories"]["source"])
    with_dumps = {path for path in (source / "tests" / "unit").rglob("*_test.cpp") if DUMPS in path.read_text()}
    found = {}
    for target in json.loads(run(["meson", "introspect", "--targets", build])):
        for path in with_dumps.intersection(sources_of(target)):
            if target["type"] == "executable":
                found[path] = pathlib.Path(target["filename"][0])
    if not with_dumps:
        raise Trouble("%s has no test with a dump: it is older than the digests, and its dumps are files in tests/unit/golden" % source)
    if missing := sorted(with_dumps - set(found)):
        raise Trouble("%s does not build %s; meson configure %s -Dtests=true turns the tests on" % (build, ", ".join(map(str, missing)), build))
    return [(program, path) for path, program in sorted(found.items())]


def dump(build, to):
    """Writes the dumps of what is in a build folder."""
    build = build.resolve()
    tests = programs(build)
    run(["ninja", "-C", build, *sorted({program.relative_to(build) for program, _ in tests})])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCHPROF_")}
    for program, path in tests:
        # A digest that differs makes it fail, which is why we are here.
        done = subprocess.run([program, "--source-file=*" + path.name], env={**environment, "TORCHPROF_DUMP_GOLDEN": str(to)},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode not in (0, 1):
            raise Trouble("%s ended with status %d:\n%s" % (program, done.returncode, done.stdout[-4000:]))
    if not any(to.rglob("*.txt")):
        raise Trouble("%s wrote no dump" % ", ".join(str(program) for program, _ in tests))


@contextlib.contextmanager
def checked_out(commit, folder):
    tree = folder / "tree"
    run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", tree, commit])
    try:
        run(["meson", "setup", folder / "build", tree, "-Dtests=true"])
        yield folder / "build"
    finally:
        run(["git", "-C", ROOT, "worktree", "remove", "--force", tree])


def is_commit(name):
    return subprocess.run(["git", "-C", ROOT, "rev-parse", "--quiet", "--verify", name + "^{commit}"], capture_output=True).returncode == 0


def dumps_of(side, scratch):
    """{name: lines} of a build folder, a folder of dumps or a commit."""
    to = scratch / "dumps"
    to.mkdir(parents=True)
    folder = pathlib.Path(side)
    if (folder / "meson-info").is_dir():
        dump(folder, to)
    elif folder.is_dir() and any(folder.rglob("*.txt")):
        to = folder
    elif is_commit(side):
        print("%s: is built ..." % side, file=sys.stderr)
        with checked_out(side, scratch) as build:
            dump(build, to)
    else:
        raise Trouble("%s is no build folder, no folder of dumps and no commit" % side)
    return {str(path.relative_to(to).with_suffix("")): path.read_text().splitlines() for path in sorted(to.rglob("*.txt"))}


def parsed(line):
    """(kind, {field: number}, the rest) of a record."""
    kind, _, rest = line.partition(" ")
    fields = {}
    while match := FIELD.match(rest.partition(" ")[0]):
        fields[match[1]] = int(match[2])
        rest = rest.partition(" ")[2]
    return kind, fields, rest


def changed_fields(old, new):
    """[(field, before, after)]"""
    (_, old_fields, old_text), (_, new_fields, new_text) = parsed(old), parsed(new)
    found = [(name, old_fields.get(name, "nothing"), new_fields.get(name, "nothing"))
             for name in [*old_fields, *(name for name in new_fields if name not in old_fields)] if old_fields.get(name) != new_fields.get(name)]
    return found + ([("text", old_text or "nothing", new_text or "nothing")] if old_text != new_text else [])


def differences(old, new):
    """[(number of the line in `old`, in `new`, old line, new line)] of two dumps; None for what only the other has. Where as many records of the same
    kinds stand in place of others, they changed one by one."""
    for tag, a, a_end, b, b_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        before, after = old[a:a_end], new[b:b_end]
        if [parsed(line)[0] for line in before] == [parsed(line)[0] for line in after]:
            yield from ((a + i + 1, b + i + 1, *lines) for i, lines in enumerate(zip(before, after)))
        else:
            yield from ((a + i + 1, None, line, None) for i, line in enumerate(before))
            yield from ((None, b + i + 1, None, line) for i, line in enumerate(after))


def summary(found):
    """A line a kind: how many records changed and in which fields, how many only one side has."""
    counts = collections.defaultdict(collections.Counter)
    for _, _, before, after in found:
        of_kind = counts[parsed(before or after)[0]]
        if before is None or after is None:
            of_kind["only old" if after is None else "only new"] += 1
        else:
            of_kind["changed"] += 1
            of_kind.update("in " + field for field, _, _ in changed_fields(before, after))
    for kind, of_kind in sorted(counts.items()):
        yield "  %s: %s" % (kind, ", ".join("%d %s" % (count, what) for what, count in of_kind.items()))


def report(name, old, new, most):
    """The lines that say how a dump differs; none: it does not."""
    if old is None or new is None:
        return ["%s: only in %s" % (name, "NEW" if old is None else "OLD")]
    found = list(differences(old, new))
    if not found:
        return []
    lines = ["%s: %d -> %d lines, %d different" % (name, len(old), len(new), len(found)), *summary(found)]
    for at_old, at_new, before, after in found[:most]:
        if before is None or after is None:
            lines.append("  %s line %d: %s" % (("-", at_old, before) if after is None else ("+", at_new, after)))
        else:
            place = "line %d" % at_new if at_old == at_new else "line %d, now %d" % (at_old, at_new)
            lines.append("  %s: %s" % (place, before))
            lines += ["      %s: %s -> %s" % change for change in changed_fields(before, after)]
    return lines + (["  ... and %d more; --most shows more" % (len(found) - most)] if len(found) > most else [])


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("old", metavar="OLD", help="build folder, folder of dumps or commit")
    parser.add_argument("new", metavar="NEW", help="the same")
    parser.add_argument("-k", metavar="NAME", default="", help="only dumps with NAME in their names")
    parser.add_argument("--most", type=int, metavar="N", default=20, help="show so many records of each dump (20)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            old, new = (dumps_of(side, pathlib.Path(scratch) / name) for side, name in ((options.old, "old"), (options.new, "new")))
            names = sorted(name for name in {**old, **new} if options.k in name)
            if not names:
                raise Trouble("no dump has %s in its name; there are %s" % (options.k, ", ".join({**old, **new})))
        except (Trouble, OSError) as trouble:
            print("golden_diff.py: %s" % trouble, file=sys.stderr)
            return 2
    lines = [line for name in names for line in report(name, old.get(name), new.get(name), options.most)]
    print("\n".join(lines or ["dumps: %d, all the same" % len(names)]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
