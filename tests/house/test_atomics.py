"""Every atomic names its partner.

Each acquire, release, acq_rel, seq_cst and fence, of std::atomic or of the compiler's __atomic functions, has the words "pairs with" in the
comment on its line, or in the comment directly above the statement or the small function that it belongs to: with which load or store, and
why. The comment in front of two or three statements may speak of all of them. An access that names no order is sequentially consistent, so
it has to name its order first.
"""
import pathlib
import re

import pytest

from conftest import ROOT

FOLDERS = ["cupti", "formats", "inject", "launcher", "tracer"]
ORDER = re.compile(r"memory_order(_|::)(acquire|release|acq_rel|seq_cst|consume)\b|__ATOMIC_(ACQUIRE|RELEASE|ACQ_REL|SEQ_CST)\b|atomic_(thread|signal)_fence")
NAMED = re.compile(r"memory_order|__ATOMIC_")
ACCESS = re.compile(r"\.(load|store|exchange|fetch_(add|sub|or|and|xor)|compare_exchange_(weak|strong)|test_and_set)\(")
PARTNER = re.compile(r"\bpairs with\b|\bpair with\b", re.IGNORECASE)
NEAR = 3  # statements that one comment may speak of


def without_comment(line):
    return line.split("//")[0]


def statement_at(lines, at):
    """The text from line `at` to the end of its statement: the order may stand on a later line than the access."""
    text = ""
    for line in lines[at:at + 4]:
        text += without_comment(line)
        if ";" in without_comment(line) or without_comment(line).rstrip().endswith("{"):
            break
    return text


def comments_near(lines, at):
    """The comments on the line, and those above it as far as NEAR lines of code away, unless a blank line comes first."""
    found, code = lines[at].partition("//")[2], 0
    for line in reversed(lines[:at]):
        if not line.strip():
            break
        if line.lstrip().startswith("//"):
            found += " " + line.partition("//")[2]
        else:
            code += 1
            if code > NEAR:
                break
            found += " " + line.partition("//")[2]
    return found


def alone(text):
    """(line number, line) of each atomic that does not name its partner, or its order."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        code = without_comment(line)
        nameless = ACCESS.search(code) and not NAMED.search(statement_at(lines, at))
        if nameless or (ORDER.search(code) and not PARTNER.search(comments_near(lines, at))):
            yield at + 1, line.strip()


def test_every_atomic_names_its_partner():
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*")) if file.suffix in (".h", ".cpp")]
    assert len(files) > 200
    found = ["%s:%d: %s" % (file.relative_to(ROOT), number, line) for file in files for number, line in alone(pathlib.Path(file).read_text())]
    assert found == []


PLANTED = {
    "a release without a word": "g_state.store(kOn, std::memory_order_release);",
    "an acquire whose comment says something else": "// The state.\nreturn state.load(std::memory_order_acquire);",
    "a comment behind a blank line": "// Pairs with get().\nint a;\n\ng_state.store(kOn, std::memory_order_release);",
    "a comment too far above": "// Pairs with get().\nint a;\nint b;\nint c;\nint d;\ng_state.store(kOn, std::memory_order_release);",
    "a fence": "std::atomic_thread_fence(std::memory_order_seq_cst);",
    "a function of the compiler": "__atomic_store_n(&a, 1, __ATOMIC_RELEASE);",
    "an order on a later line": "g_state.store(kOn,\n              std::memory_order_release);",
    "an order that is not named": "// Pairs with get().\nif (g_once.exchange(true)) return;",
    "a load whose order is not named": "return std::min(header.committed.load(), kMost);",
}
HARMLESS = {
    "on the line": "g_state.store(kOn, std::memory_order_release);  // pairs with get(): the table is filled",
    "above": "// Pairs with get(): the table is filled.\ng_state.store(kOn, std::memory_order_release);",
    "above a small function": "// Pairs with set().\ninline State get() noexcept {\n  return g_state.load(std::memory_order_acquire);\n}",
    "above two": "// The first pairs with a(), the second with b().\ng_a.store(1, std::memory_order_release);\ng_b.store(1, std::memory_order_release);",
    "relaxed": "++n;\ng_count.fetch_add(1, std::memory_order_relaxed);\nif (a.compare_exchange_weak(b,\n    c, std::memory_order_relaxed)) return;",
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_one_is_found(case):
    assert len(list(alone("int x;\n\n" + PLANTED[case] + "\n"))) == 1


@pytest.mark.parametrize("case", HARMLESS)
def test_one_that_names_its_partner_is_not(case):
    assert list(alone("int x;\n\n" + HARMLESS[case] + "\n")) == []
