"""A hook of MkDocs (mkdocs.org/user-guide/configuration/#hooks): the pages of the site that do not lie in docs/, and the links between them.

README.md and its neighbours are pages, too, so a link reads alike on GitHub and on the site. `options.md` is the manual page as `torchprof help` says
it: packaging/site has it printed into $SITE_OPTIONS, as Markdown.
"""
import os
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[1]
ADDED = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md",
         "CODE_OF_CONDUCT.md": "conduct.md"}
PAGE_OF = {**ADDED, **{"docs/" + path.name: path.name for path in (ROOT / "docs").glob("*.md")}}


def on_files(files, config):
    for source, page in ADDED.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    options = os.environ.get("SITE_OPTIONS")
    for name in "site.css", "site.js":
        files.append(File.generated(config, name, content=(ROOT / "packaging" / "site_theme" / name).read_text()))
    files.append(File.generated(config, "options.md", content=pathlib.Path(options).read_text() if options else "# All options\n\n`torchprof help run`\n"))
    return files


def on_page_markdown(markdown, page, **_):
    """Links as the site has them: `../README.md#x` of docs/limits.md is `index.md#x`, `docs/pictures/x.svg` of README.md is `pictures/x.svg`."""
    source = next((source for source, name in PAGE_OF.items() if name == page.file.src_path), "docs/" + page.file.src_path)

    def link(match):
        before, target, after = match.groups()
        target, _, anchor = target.partition("#")
        if re.match(r"\w+:", target) or not target:
            return match[0]
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        here = PAGE_OF.get(path) or (os.path.relpath(path, "docs") if path.startswith("docs/") else target)
        return before + here + ("#" + anchor if anchor else "") + after
    return re.sub(r"""(\]\(|\b(?:src|srcset)=")([^)"\s]+)([)"])""", link, markdown)


def on_post_page(output, **_):
    """What the theme leaves without a name for who does not see it: the search, and the empty corner of a table."""
    output = output.replace('data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"')
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", output)
