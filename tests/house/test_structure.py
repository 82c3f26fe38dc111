"""The size of the rooms and of the files in them: what a stranger can overlook at a glance."""
import collections
import functools
import re
import statistics
import subprocess

from conftest import ROOT

PRODUCT = ("cupti", "formats", "inject", "launcher", "tracer")
MOST_FILES, MOST_LINES, MEDIAN = 40, 500, 120
LISTS = {"tracer/spool/record.h"}  # one list, which is not to be in pieces


def tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in listed if name and (ROOT / name).is_file()]


def test_no_folder_is_crowded():
    # Golden files are data, one a case of one test.
    folders = collections.Counter(name.rpartition("/")[0] for name in tracked() if "/golden/" not in name)
    assert len(folders) > 40
    assert {folder: count for folder, count in folders.items() if count > MOST_FILES} == {}


def test_no_file_of_the_product_is_long():
    lines = {name: len((ROOT / name).read_text().splitlines()) for name in tracked()
             if name.startswith(tuple(folder + "/" for folder in PRODUCT)) and name.endswith((".h", ".cpp"))}
    assert {name: count for name, count in lines.items() if count > MOST_LINES and name not in LISTS} == {}
    assert statistics.median(lines.values()) < MEDIAN


OF_A_PROCESSOR = re.compile(r"__x86_64__|__aarch64__|__amd64__|__i386__|__ARM_|__SSE|__AVX|[exa]mmintrin\.h|immintrin\.h|arm_neon\.h|__builtin_(?:ia32|aarch64)_|cpu_family")


def test_what_is_about_the_processor_is_in_few_files():
    found = {name for name in tracked() if name.startswith(tuple(folder + "/" for folder in PRODUCT)) and OF_A_PROCESSOR.search((ROOT / name).read_text())}
    rest = {name for name in found if not name.startswith("tracer/processor/")}
    # They choose between two files: of assembler throughout, and of registers of a thread that is stopped.
    assert len(found) - len(rest) == 5 and rest == {"inject/meson.build", "launcher/attach/meson.build"}, rest


def by_namespace(name):
    """[(the namespaces around it, None for one without a name; a line)] of a file, but for the lines that open and close namespaces."""
    namespaces = []
    for line in (ROOT / name).read_text().splitlines():
        if opened := re.match(r"(?:inline )?namespace(?: ([\w:]+))? \{", line):
            namespaces.append(opened[1])
        elif line.startswith("}  // namespace") and namespaces:
            namespaces.pop()
        else:
            yield tuple(namespaces), line


def test_no_two_types_of_a_namespace_have_one_name():
    """Where no file includes both, no compiler complains, and one's destructor may run for the other."""
    found = collections.defaultdict(set)
    for name in tracked():
        if not name.endswith((".h", ".cpp")):
            continue
        for namespaces, line in by_namespace(name):
            defined = re.match(r"(?:template <.*> )?(?:class|struct|union|enum class) (?:alignas\([^)]*\) )?(\w+)(?: final)?(?: : .*)? \{", line)
            if defined and None not in namespaces:
                found["::".join([*namespaces, defined[1]])].add(name)
    assert len(found) > 400
    assert {type_: sorted(files) for type_, files in found.items() if len(files) > 1} == {}


def test_unit_tests_with_threads_run_under_the_sanitizer_of_threads():
    listed = re.search(r"starts_threads = \[(.*?)\]", (ROOT / "tests/unit/meson.build").read_text(), re.DOTALL)[1]
    starting = re.compile(r"std::j?thread\b|std::async|pthread_create|gzip\.h|parallel\.h")
    found = {name.removeprefix("tests/unit/").removesuffix("_test.cpp") for name in tracked()
             if re.fullmatch(r"tests/unit/\w+/\w+_test\.cpp", name) and starting.search((ROOT / name).read_text())}
    assert found == set(re.findall(r"'(.*?)'", listed))


# The first throws if reading fails, unlike all else that is read from a stream; the second if the directory goes while it is listed.
THROWING = re.compile(r"istreambuf_iterator|fstream [^;]*\"/proc/|for \([^;)]*: (?:std::filesystem|fs)::directory_iterator\(\"/proc")


def test_what_the_kernel_says_of_processes_is_read_in_one_way():
    """A process may end between the opening of a file of it and the reading (formats/io/process_files.h)."""
    found = {name: match[0] for name in tracked() if name.startswith(tuple(folder + "/" for folder in PRODUCT)) and name.endswith((".h", ".cpp"))
             if (match := THROWING.search(re.sub(r"//.*", "", (ROOT / name).read_text())))}
    assert found == {}


DEFINED = re.compile(r"(?:template <.*>\s*)?(?:\[\[[^\]]*\]\]\s*)*(?:(?:inline|constexpr|constinit|static|thread_local|const|extern) )*"
                     r"(?:(?:class|struct|enum class|enum|union) (?:alignas\([^)]*\) )?(\w+)|using (\w+) =|[\w:<>,&*\[\] ]+?[\s&*](\w+)\s*[(={;\[])")


def named(name):
    """[(namespaces, None for one without a name; what is named there)] of a file, by lines that begin a definition."""
    for namespaces, line in by_namespace(name):
        if namespaces and not line[:1].isspace() and (defined := DEFINED.match(line)):
            yield namespaces, next(filter(None, defined.groups()))


@functools.cache
def read_with(name):
    """The headers of the product that the compiler reads with a file."""
    found = set()
    for header in re.findall(r'(?m)^#include "([\w/]+\.h)"', (ROOT / name).read_text()):
        if (ROOT / header).exists() and header not in found:
            found |= {header} | read_with(header)
    return found


def test_no_name_of_a_file_hides_one_of_a_header():
    """A room is compiled as one source. A name of a file's own would be taken, without a word, by a file after it that means a header's."""
    product = [name for name in tracked() if name.startswith(tuple(folder + "/" for folder in PRODUCT))]
    of_headers = collections.defaultdict(set)
    for name in product:
        if name.endswith(".h"):
            for namespaces, what in named(name):
                of_headers[what].add(("::".join(filter(None, namespaces)), name))
    hidden = set()
    for name in product:
        if not name.endswith(".cpp"):
            continue
        room = [other for other in product if other.endswith(".cpp") and other != name and other.rpartition("/")[0] == name.rpartition("/")[0]]
        for namespaces, what in named(name):
            inner = "::".join(filter(None, namespaces)) + "::"
            if what.startswith("__"):
                continue
            for header in [header for around, header in of_headers[what] if None in namespaces and inner.startswith(around + "::")]:
                hidden |= {(name, what, header, other) for other in room
                           if header in read_with(other) and "\nnamespace %s {" % inner[:-2] in (ROOT / other).read_text() and re.search(r"(?<![\w.>])%s\b" % what, (ROOT / other).read_text())}
    assert sorted(hidden) == []
