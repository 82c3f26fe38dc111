"""embed.py HEADER FILE...: page.css and page.html as the constants kPageCss and kPageHtml, all scripts in their order as kPageScripts.
In lines: compilers limit one literal's length."""
import pathlib
import sys

header, *files = map(pathlib.Path, sys.argv[1:])


def literal(file):
    return "\n".join('R"~~~(%s)~~~"' % line for line in file.read_text().splitlines(keepends=True))


text = "#pragma once\n"
for file in files:
    if file.suffix != ".js":
        text += "inline constexpr char k%s[] =\n%s;\n" % ("".join(part.capitalize() for part in file.name.split(".")), literal(file))
scripts = [literal(file) for file in files if file.suffix == ".js"]
text += "inline constexpr const char* kPageScripts[] = {\n%s};\n" % ",\n".join(scripts)
header.write_text(text)
