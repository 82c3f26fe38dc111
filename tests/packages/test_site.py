"""The documentation as a site: it builds without a warning, no link leads nowhere, and a page wants nothing of the network."""
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse

import pytest

from accessibility import FAULTS, axe_source
from browser import chromium, needs_chromium, said_in
from conftest import ROOT, clean_environment

MKDOCS = "mkdocs-material==9.8.2"


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    place = tmp_path_factory.mktemp("mkdocs")
    subprocess.run([sys.executable, "-m", "virtualenv", "-q", place], check=True)
    done = subprocess.run([place / "bin" / "pip", "-q", "install", MKDOCS], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("%s cannot be fetched: %s" % (MKDOCS, done.stderr.strip()[-200:]))
    return place / "bin"


def build(tools, sources, to):
    env = clean_environment({"PATH": "%s:/usr/bin:/bin" % tools, "TORCHPROF": "/nowhere/torchprof"})
    return subprocess.run([sources / "packaging" / "site", to], capture_output=True, text=True, env=env)


@pytest.fixture(scope="module")
def site(tools, tmp_path_factory):
    place = tmp_path_factory.mktemp("site")
    done = build(tools, ROOT, place / "site")
    assert done.returncode == 0 and "WARNING" not in done.stdout + done.stderr, done.stdout + done.stderr
    return place / "site"


class Page(html.parser.HTMLParser):
    """What a page links to, what it loads, and the names of its places."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.names = set(), set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.names.add(attrs.get("id"))
        if tag == "a" and "href" in attrs:
            self.links.add(attrs["href"])
        if tag in ("script", "img", "link", "iframe") and (target := attrs.get("src") or attrs.get("href")):
            self.loads.add(target)


def test_no_link_leads_nowhere_and_nothing_comes_from_elsewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    names = {path.name for path in pages}
    assert {"index.html", "guides.html", "install.html", "comparison.html", "security.html", "changelog.html", "options.html"} <= names
    faults = []
    for path, page in pages.items():
        for target in page.links | page.loads:
            url = urllib.parse.urlsplit(target)
            if url.scheme or url.netloc:
                faults += [(path.name, target)] if target in page.loads and url.scheme != "data" else []
                continue
            file = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            file = file / "index.html" if file.is_dir() else file
            if not file.exists() or url.fragment and file in pages and urllib.parse.unquote(url.fragment) not in pages[file].names and not url.fragment.startswith("__"):
                faults.append((path.name, target))
    assert faults == []
    # What the search looks through.
    assert (site / "search" / "search_index.json").stat().st_size > 100_000


@needs_chromium
@pytest.mark.parametrize("scheme, palette", [(1, "default"), (0, "slate")], ids=["light", "dark"])
def test_a_page_has_no_fault_of_accessibility(site, tmp_path, tmp_path_factory, scheme, palette):
    axe = axe_source(tmp_path_factory.mktemp("axe") / "env")
    for name in "index", "guides", "formats", "limits", "comparison":
        page = site / ("%s-with-axe.html" % name)
        # After what the theme's own script makes of the page.
        page.write_text((site / (name + ".html")).read_text().replace("</body>", "<script>%s</script><script>%s addEventListener('load', () => setTimeout(async () => { "
                        "const said = { palette: document.body.dataset.mdColorScheme, faults: await faults() }; "
                        "document.body.replaceChildren('SAID' + JSON.stringify(said) + 'DIAS'); }, 500));</script></body>" % (axe, FAULTS)))
        said = said_in(chromium(tmp_path / "profile", "--blink-settings=preferredColorScheme=%d" % scheme, "--window-size=1200,900",
                                "--virtual-time-budget=60000", "--dump-dom", page.as_uri()))
        page.unlink()
        assert said == {"palette": palette, "faults": []}, (name, json.dumps(said, indent=1))


def test_a_dead_link_fails_the_build(tools, tmp_path):
    for name in subprocess.run(["git", "ls-files", "-z", "docs", "packaging", "*.md", "mkdocs.yml"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (ROOT / name).is_file() and not name.startswith("packaging/python"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    page = tmp_path / "docs" / "install.md"
    page.write_text(page.read_text() + "\n[to nothing](limits.md#nowhere)\n")
    done = build(tools, tmp_path, tmp_path / "site")
    assert done.returncode != 0 and re.search("nowhere", done.stdout + done.stderr), done.stdout + done.stderr
    assert os.access(ROOT / "packaging" / "site", os.X_OK)
