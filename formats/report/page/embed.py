"""embed.py HEADER FILE...: each file as a constant of the header, page.css as kPageCss. In lines: compilers limit one literal's length."""
import pathlib
import sys

header, *files = map(pathlib.Path, sys.argv[1:])
text = "#pragma once\n"
for file in files:
    lines = "\n".join('R"~~~(%s)~~~"' % line for line in file.read_text().splitlines(keepends=True))
    text += "inline constexpr char k%s[] =\n%s;\n" % ("".join(part.capitalize() for part in file.name.split(".")), lines)
header.write_text(text)
