"""Comments that a formatter, or a rename, has torn.

    ruler    a ruler is one line, "// ---- title ----...", and ends with its dashes
    long     no line with a comment goes beyond column 120 (clang-format does not wrap comments)
    row      a table row or a rule of a grammar goes on in its own column, never at the row's beginning
    item     an item of a list goes on where its text began, never below its bullet or number
    code     a comment at the end of a line does not break the code before it
    brace    a comment at the end of a one-line function does not move behind its closing brace, and one behind an opening brace
             has that line alone: above the struct there is room for more

usage: comments.py [FOLDER...]: prints each line with its rule, FILE:LINE: RULE: what is wrong; the exit status is 1 if there is one.
Without folders: every folder of the repository with C++ in it.
"""
import pathlib
import re
import sys

COLUMNS = 120
ALONE = re.compile(r"^\s*//\s*[-=~]{5,}\s*$")
RULER = re.compile(r"^\s*// ----(?!.*----\s*$)")
COMMENT = re.compile(r"^(\s*//)( *)(.*)$")
BULLET = re.compile(r"(\*|-|\d+\.) +\S")
# Two columns: something, at least three spaces, something. Or a rule of a grammar.
ROW = re.compile(r"\S {3,}\S|\S :=( |$)")
# What a declaration or an expression may end with where it was broken before its last part.
BROKEN = re.compile(r"^\s+[\w:<>,*& ]*([\w>*&]|=)$|^.*= \{[^{}]*,$")
LAST_PART = re.compile(r"^\s+([^/\"]*;)\s+//")
AFTER_BRACE = re.compile(r"^\s*\}  // (?!namespace|extern|anonymous)")
OPENED = re.compile(r"^.*\{  // ")
ONE_LINE_BODY = re.compile(r"^\s+[^/]*;$")
KEYWORD = re.compile(r"^\s*(return|else|do|public|private|default|case)\b")


def parts(line):
    """(indentation, text) of a comment that has a line to itself; None for any other line."""
    match = COMMENT.match(line)
    return (len(match[1]) + len(match[2]), match[3]) if match and match[3] else None


def is_full(line, following):
    """There was no room at the end of the line for the next one's first word: it may have been wrapped there."""
    return len(line) + 1 + len(following.split(" ")[0]) > COLUMNS


def is_next_row(above, here):
    """Their second columns begin at the same place; or it begins as a rule of a grammar, an alternative or a sample does."""
    columns = [{match.end() - 1 for match in re.finditer(r"\S {2,}\S", text)} for text in (above, here)]
    return bool(columns[0] & columns[1]) or re.match(r"\| ?\S|\S+ +:=( |$)|[\"{}]", here) is not None


def torn(lines):
    """(line number, rule, what is wrong) of each."""
    for number, line in enumerate(lines, 1):
        before = lines[number - 2] if number > 1 else ""
        if "//" in line and len(line) > COLUMNS:
            yield number, "long", "%d columns" % len(line)
        if ALONE.match(line):
            yield number, "ruler", "dashes alone"
        elif RULER.match(line):
            yield number, "ruler", "a title without its dashes"
        here, above = parts(line), parts(before)
        if here and above and here[0] == above[0]:
            if BULLET.match(above[1]) and not BULLET.match(here[1]):
                yield number, "item", "the item above goes on below its bullet"
            elif ROW.search(above[1]) and is_full(before, here[1]) and not is_next_row(above[1], here[1]):
                yield number, "row", "the row above goes on at its beginning"
        last = LAST_PART.match(line)
        if last and BROKEN.match(before) and not KEYWORD.match(before) and len(before) + 1 + len(last[1]) <= COLUMNS:
            yield number, "code", "the comment has broken the line above"
        opened = OPENED.match(before)
        if opened and line.strip().startswith("// ") and line.index("//") == opened.end() - len("// "):
            yield number, "brace", "the comment behind the opening brace goes on"
        if AFTER_BRACE.match(line) and ONE_LINE_BODY.match(before) and lines[number - 3].endswith("{"):
            yield number, "brace", "the comment stood at the end of the function's line"


def files(root, folders=()):
    for file in sorted(root.rglob("*")):
        name = file.relative_to(root).as_posix()
        if file.suffix in (".h", ".cpp") and name.startswith(tuple(folders) or ("cupti/", "formats/", "inject/", "launcher/", "tests/", "tracer/")):
            yield name, file


def violations(root, folders=()):
    """Lines "FILE:LINE: RULE: what is wrong"."""
    for name, file in files(pathlib.Path(root), tuple(folder.rstrip("/") + "/" for folder in folders)):
        for number, rule, text in torn(file.read_text().splitlines()):
            yield "%s:%d: %s: %s" % (name, number, rule, text)


if __name__ == "__main__":
    broken = list(violations(pathlib.Path(__file__).parents[2], sys.argv[1:]))
    print("\n".join(broken) or "no comment is torn")
    sys.exit(1 if broken else 0)
