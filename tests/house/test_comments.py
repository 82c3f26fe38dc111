"""No comment is torn: rulers, tables, grammars, lists, and code that a comment has pushed to the next line (comments.py)."""
import pytest

import comments
from conftest import ROOT

FOLDERS = ["cupti", "formats", "inject", "launcher", "tests", "tracer"]
LONG = "x" * 50

# What was found: (rule, the text as a formatter left it, the same as it was meant).
PLANTED = {
    "a ruler on two lines": ("ruler", """
// ---- hot
// ---------------------------------------------------------------------------------------------------------------
""", """
// ---- hot ------------------------------------------------------------------------------------------------------
"""),
    "a ruler without dashes": ("ruler", """
// ---- hot
""", """
// ---- hot ----
"""),
    "a line beyond column 120": ("long", """
// %s
""" % ("word " * 24), """
// %s
""" % ("word " * 23)),
    "code with a comment beyond column 120": ("long", """
int count;  // %s
""" % ("word " * 24), """
// %s
int count;
""" % ("word " * 23)),
    "a table whose cell wrapped": ("row", """
//   FileHeader    the process, once, before the first chunk; `lost` and `last` later, by any thread (relaxed:
//   counters), `clean_exit`
//                 from the library's destructor.
""", """
//   FileHeader    the process, once, before the first chunk; `lost` and `last` later, by any thread (relaxed:
//                 counters), `clean_exit` from the library's destructor.
//   ChunkHeader   the thread that claimed the chunk
"""),
    "a grammar whose rules ran into each other": ("row", """
//     spool := FileHeader (one page) chunk*        each chunk `FileHeader::chunk_size` bytes, aligned to it after the
//     first page chunk := ChunkHeader record* zeros
""", """
//     spool := FileHeader (one page) chunk*        each chunk `FileHeader::chunk_size` bytes, aligned to it after it
//     chunk := ChunkHeader record* zeros
//              | nothing
"""),
    "an item that wrapped below its bullet": ("item", """
//  * Any number of threads may iterate. Views point into the mapping and live with
//  it.
""", """
//  * Any number of threads may iterate. Views point into the mapping and live with
//    it.
//  * Nothing here throws.
// And no item.
"""),
    "an item that wrapped below its number": ("item", """
// 1. hook_start(), from the ELF constructor: our own
// initialiser.
// 2. enter()
""", """
// 1. hook_start(), from the ELF constructor: our own
//    initialiser.
// 2. enter()
"""),
    "a member that its comment broke": ("code", """
struct Header {
  std::atomic<uint64_t>
      stop_ticks;  // capture stopped for good here
};
""", """
struct Header {
  std::atomic<uint64_t> stop_ticks;  // capture stopped for good here
  const std::atomic<uint64_t>& %s =
      %s;  // the line above has no room for it
};
""" % (LONG, LONG)),
    "a value that its comment broke": ("code", """
  static constexpr unsigned kFlag =
      1u << 11;  // Py_TPFLAGS_HAVE_VECTORCALL
""", """
  return
      kFlag;  // no declaration
"""),
    "numbers that their comment broke": ("code", """
constexpr Layout kLayout = {44, 64, 24,
                            32, 72, 56};  // 3.11
""", """
constexpr Layout kLayout = {44, 64, 24, 32, 72, 56};  // 3.11
"""),
    "a comment behind the brace of one line": ("brace", """
    void begin(uint32_t function) noexcept {
      of_[begun_++] ^= function;
    }  // outermost first
""", """
    // Outermost first.
    void begin(uint32_t function) noexcept { of_[begun_++] ^= function; }
}  // namespace torchprof
"""),
    "a comment behind an opening brace that goes on": ("brace", """
struct GcBegin {  // CPython's garbage collector begins; what it runs lies
                  // inside
""", """
struct GcBegin {  // CPython's garbage collector begins
  // A comment of the first member.
"""),
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_comment_is_torn(folder):
    assert list(comments.violations(ROOT, [folder])) == []


def test_no_folder_with_code_is_left_out():
    with_code = {path.relative_to(ROOT).parts[0] for path in ROOT.glob("*/**/*.h")} - {"build"}
    assert {folder for folder in with_code if not folder.startswith(("build", ".")) and folder != "subprojects"} <= set(FOLDERS)


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_one_is_seen(case):
    rule, torn, whole = PLANTED[case]
    assert {found for _, found, _ in comments.torn(torn.splitlines())} == {rule}
    assert list(comments.torn(whole.splitlines())) == []
