"""usage: chosen.py unit|pytest BUILD ARG...: what the arguments of tests/run ask for, one a line.

unit      the names of those of meson's tests in BUILD that they ask for
pytest    what pytest is to be given; nothing: no test of pytest's is asked for

Arguments are pytest's. A file or folder, with or without "::NAME", runs alone; one below tests/unit means the unit tests of its sources.
`-k EXPR` (names of tests, joined by and, or, not and parentheses) leaves of the unit tests those whose own name it fits.
Without files and -k all unit tests are asked for.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
UNIT = ROOT / "tests" / "unit"


def is_path(argument):
    return not argument.startswith("-") and os.path.exists(ROOT / argument.partition("::")[0])


def is_unit_path(argument):
    return is_path(argument) and (ROOT / argument).resolve().is_relative_to(UNIT)


def fits(expression, name):
    """As pytest has it: a word of the expression holds if it is part of the name, whatever the case of letters."""
    def held(word):
        return word[0] if word[0] in ("and", "or", "not", "(", ")") else str(word[0].lower() in name.lower())
    words = re.sub(r"[()]|[^\s()]+", lambda word: " %s " % held(word), expression)
    try:
        return bool(eval(words.strip(), {"__builtins__": {}}))
    except SyntaxError:
        sys.exit("tests/run: -k %s: is no expression of names, and, or, not and parentheses" % expression)


def units(tests, arguments, sources_below):
    """tests: [name]; sources_below(PATH): the sources there."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-k", default="")
    known, rest = parser.parse_known_args(arguments)
    paths = [argument for argument in rest if is_path(argument)]
    if paths:
        names = {file.name.removesuffix("_test.cpp") for path in paths if is_unit_path(path) for file in sources_below(ROOT / path)}
        tests = [test for test in tests if test in names]
    return [test for test in tests if not known.k or fits(known.k, test)]


def for_pytest(arguments):
    others = [argument for argument in arguments if not is_unit_path(argument)]
    if any(map(is_path, others)):
        return others
    return [] if len(others) < len(arguments) else [*others, "tests/house", "tests/e2e"]


def main():
    what, build, *arguments = sys.argv[1:]
    if what == "pytest":
        chosen = for_pytest(arguments)
    else:
        listed = subprocess.run(["meson", "introspect", "--tests", build], capture_output=True, text=True, check=True).stdout
        chosen = units([test["name"] for test in json.loads(listed)], arguments,
                       lambda path: sorted(path.rglob("*_test.cpp")) if path.is_dir() else [path])
    print("".join(argument + "\n" for argument in chosen), end="")


if __name__ == "__main__":
    main()
