"""What the documents say of the project is so: links, paths, options, the version. Each check finds a fault that is planted."""
import functools
import re
import subprocess

import pytest

from conftest import ROOT, SUBCOMMANDS

# `tests/run -k x`, `formats/write/`, `cupti/nvtx/nvtx.h:30`: what begins with a folder of ours is a path up to the first blank.
FOLDERS = ("cupti", "docs", "examples", "formats", "inject", "launcher", "packaging", "tests", "tracer", r"\.ci")
PATH = re.compile(r"`((?:%s)/[^\s`:]*)" % "|".join(FOLDERS))
COMMAND = re.compile(r"\btorchprof (%s)\b([^`\n]*)" % "|".join(SUBCOMMANDS))
END_OF_COMMAND = re.compile(r"[|;&>#)]|\s->")


def documents():
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name: (ROOT / name).read_text() for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


def long_lines(text, lines=120, columns=120):
    found = ["line %d has %d columns" % (n, len(line)) for n, line in enumerate(text.splitlines(), 1) if len(line) > columns]
    return found + (["%d lines" % text.count("\n")] if text.count("\n") > lines else [])


def anchors(text):
    """The headings of a document as GitHub names them."""
    headings = re.findall(r"^#+ (.*)", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(name, text):
    for target in re.findall(r"""(?:\]\(|\b(?:src|srcset|href)=")([^)"\s]+)[)"]""", text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        if not file.exists():
            yield "%s: %s is not there" % (name, target)
        elif anchor and anchor not in anchors(text if file == ROOT / name else file.read_text()):
            yield "%s: %s has no such heading" % (name, target)


def missing_paths(name, text):
    for path in PATH.findall(text):
        if not list(ROOT.glob(path.rstrip("/"))):
            yield "%s: %s is not there" % (name, path)


def unknown_options(name, text, options_of):
    """`options_of(subcommand)`: {option: whether a value follows}. Of `run` only what stands before the command."""
    for subcommand, rest in COMMAND.findall(text):
        known = options_of(subcommand)
        words = END_OF_COMMAND.split(rest, 1)[0].split()
        while words:
            word = words.pop(0)
            option = word.partition("=")[0].rstrip(".,:")
            if word == "--" or subcommand in ("run", "doctor") and not word.startswith("-"):
                break
            if not re.match(r"--?[a-z]", word):
                continue
            if option not in known:
                yield "%s: torchprof %s has no %s" % (name, subcommand, option)
            elif known[option] and "=" not in word:
                words = words[1:]


@pytest.fixture(scope="module")
def options_of(launcher):
    @functools.lru_cache(None)
    def read(subcommand):
        text = subprocess.run([launcher, "help", subcommand], capture_output=True, text=True, check=True).stdout
        found = {"--help": False}
        for names, value in re.findall(r"^  ((?:-\w,)?--?[a-z][\w-]*)([^\n]*)$", text, re.M):
            for option in names.split(","):
                found[option] = value.startswith(" ") and not value.startswith("   ")
        return found
    return read


def test_the_readme_is_read_in_a_few_minutes():
    assert long_lines((ROOT / "README.md").read_text()) == []


def test_every_link_leads_somewhere():
    assert [fault for name, text in documents().items() for fault in broken_links(name, text)] == []


def test_every_path_is_there():
    found = documents()
    assert {"README.md", "CONTRIBUTING.md", "docs/how-it-works.md"} <= set(found)
    assert [fault for name, text in found.items() for fault in missing_paths(name, text)] == []


def test_every_option_is_in_the_help(options_of):
    assert options_of("run")["--window"] and options_of("run")["-w"] and not options_of("run")["-q"] and options_of("diff")["--fail-over"]
    assert [fault for name, text in documents().items() for fault in unknown_options(name, text, options_of)] == []


def test_the_changelog_and_the_manual_page_have_the_version():
    version = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
    assert re.findall(r"^## \[(\d[\d.]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)[0] == version
    assert '"torchprof %s"' % version in (ROOT / "launcher" / "torchprof.1").read_text().splitlines()[1]


PLANTED = {
    "a long line": lambda options_of: long_lines("x" * 121),
    "many lines": lambda options_of: long_lines("x\n" * 121),
    "a link to nothing": lambda options_of: broken_links("docs/x.md", "[a](README.md)"),
    "a picture that is not there": lambda options_of: broken_links("x.md", '<img src="docs/pictures/nothing.webp" alt="a">'),
    "a link to no heading": lambda options_of: broken_links("docs/x.md", "[a](../README.md#nowhere)"),
    "a path that has moved": lambda options_of: missing_paths("x.md", "see `formats/kineto.cpp`"),
    "an option that is none": lambda options_of: unknown_options("x.md", "`torchprof run -o x --nothing on true`", options_of),
    "an option of another command": lambda options_of: unknown_options("x.md", "    torchprof report run --keep-spool", options_of),
}
HARMLESS = {
    "links": lambda options_of: broken_links("docs/x.md", "[a](../README.md) [b](https://x.example/y) [c](../README.md#recipes)"),
    "paths": lambda options_of: missing_paths("x.md", "`formats/write/`, `tests/fuzz/*_fuzz.cpp`, `spool/`, `tests/run -k x`, `tracer/session.h:20`"),
    "options": lambda options_of: unknown_options("x.md", "torchprof run -w steps=1..2 --python=calls python3 x.py --nothing\n`torchprof report x -n 3` --nothing "
                                                         "torchprof export x -f kineto -o y | z --nothing", options_of),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(options_of, fault):
    assert len(list(PLANTED[fault](options_of))) == 1


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_right_is_not_complained_about(options_of, text):
    assert list(HARMLESS[text](options_of)) == []
