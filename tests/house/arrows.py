"""Which folder may include which: the arrows of the architecture, read from the #include lines.

    inject, cupti --> tracer <-- formats <-- launcher

usage: arrows.py [ROOT]: prints each line that breaks an arrow; the exit status is 1 if there is one.
"""
import pathlib
import re
import sys

# What the reading half may know of the recorder's folder: the file, not how it is written.
FILE_LAYOUT = {"tracer/spool/record.h", "tracer/spool/layout.h", "tracer/spool/reader.h", "tracer/spool/file_lock.h", "tracer/spool/ids.h", "tracer/spool/clock.h",
               "tracer/spool/cursor.h", "tracer/spool/open_spans.h", "tracer/spool/gpu_records.h", "tracer/spool/step_counter.h", "tracer/spool/rank_facts.h"}
# Folder: the folders and headers of ours that it may include. tests/ may include everything.
ALLOWED = {
    "tracer": {"tracer"},
    "inject": {"inject", "cupti", "tracer"},
    "cupti": {"cupti", "tracer"},
    "formats": {"formats"} | FILE_LAYOUT,
    "launcher": {"launcher", "formats", "tracer/config/config.h", "tracer/config/program_file.h"} | FILE_LAYOUT,
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def violations(root):
    """Lines "FILE:LINE: what is wrong"."""
    root = pathlib.Path(root)
    for folder, allowed in ALLOWED.items():
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".h", ".cpp", ".inc"):
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                where, header = "%s:%d" % (file.relative_to(root), number), match[2]
                ours = header.partition("/")[0] in set(ALLOWED) | {"tests"} and "/" in header
                if match[1] == '"' and not ours:
                    yield '%s: "%s" wants its whole path from the root, or <> if it is not ours' % (where, header)
                elif ours and header not in allowed and header.partition("/")[0] not in allowed:
                    yield "%s: %s may not include %s" % (where, folder, header)


def main():
    broken = list(violations(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]))
    print("\n".join(broken) or "no include breaks an arrow")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
