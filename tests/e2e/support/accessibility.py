"""axe-core (MPL-2.0, github.com/dequelabs/axe-core) on pages of ours. It is fetched from PyPI for a test, where a package for Playwright has it."""
import pathlib
import subprocess

from pypi_python import python_with

PACKAGES = ["--no-deps", "axe-playwright-python==0.1.8"]  # axe-core 4.12


def axe_source(place):
    """The text of axe.min.js; the test is skipped where it cannot be had."""
    python = python_with(["axe_playwright_python"], PACKAGES, place)
    where = subprocess.run([python, "-c", "import importlib.util; print(importlib.util.find_spec('axe_playwright_python').submodule_search_locations[0])"],
                           capture_output=True, text=True, check=True).stdout.strip()
    source = (pathlib.Path(where) / "axe.min.js").read_text()
    assert "</script" not in source
    return source


# A function of a script: what breaks a rule of WCAG 2 A or AA or of axe's good practice, as [rule, element, why].
FAULTS = """
const faults = async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .flatMap(v => v.nodes.slice(0, 3).map(node => [v.id, node.html.slice(0, 200), node.failureSummary]));
"""
