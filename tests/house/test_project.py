"""What outsiders find in the repository, and what GitHub runs of it, is true: workflows, pre-commit, templates, the way of a release."""
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from conftest import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
# What a step of a workflow runs of ours: `tests/run`, `. .ci/setup.sh`, `packaging/notes "$TAG"`.
OURS = re.compile(r"(?<![\w/.-])((?:\.ci|docs|packaging|tests|examples)/[\w./-]*)")


def unpinned(text):
    return [used for used in re.findall(r"(?m)^\s*(?:- )?uses: (.*)$", text) if not PINNED.fullmatch(used)]


def steps(text):
    """[(job, step)] of a workflow."""
    return [(name, step) for name, job in yaml.safe_load(text)["jobs"].items() for step in job["steps"]]


def scripts(text):
    return {path for _, step in steps(text) for path in OURS.findall(step.get("run", ""))}


def faults(text):
    """What GitHub would take, and what is a hole or does not work all the same."""
    workflow = yaml.safe_load(text)
    found = ["%s is not pinned to a commit with its version" % used for used in unpinned(text)]
    found += ["%s is not there" % path for path in scripts(text) if not (ROOT / path).exists()]
    found += ["%s is not executable" % path for path in scripts(text)
              if (ROOT / path).is_file() and not path.endswith(".sh") and not os.access(ROOT / path, os.X_OK)]
    if workflow.get("permissions") != {}:
        found.append("rights are given to all jobs")
    for name, job in workflow["jobs"].items():
        found += ["%s has no %s" % (name, key) for key in ("permissions", "timeout-minutes") if key not in job]
        found += ["%s waits for %s" % (name, other) for other in [job.get("needs")] if other and other not in workflow["jobs"]]
        for step in job["steps"]:
            # Whoever opens a pull request writes the names of branches and titles: they go into a script by the environment alone.
            if "${{" in step.get("run", ""):
                found.append("%s puts an expression into a script" % name)
            if "actions/checkout@" in step.get("uses", "") and step.get("with", {}).get("persist-credentials") is not False:
                found.append("%s leaves the token in the checkout" % name)
    return found


def test_the_workflows_run_what_is_there_and_trust_nobody():
    assert [path.name for path in WORKFLOWS] == ["build.yml", "release.yml", "tests.yml"]
    assert {path.name: faults(path.read_text()) for path in WORKFLOWS} == {path.name: [] for path in WORKFLOWS}
    everything = set().union(*(scripts(path.read_text()) for path in WORKFLOWS))
    assert {"tests/run", ".ci/run", "packaging/release", "packaging/notes", "tests/packages"} <= everything


GOOD = """permissions: {}
jobs:
  a:
    permissions: {contents: read}
    timeout-minutes: 5
    steps:
      - uses: actions/checkout@%s # v1.2.3
        with:
          persist-credentials: false
      - run: tests/run
""" % ("0" * 40)
PLANTED = {"a version": ("@" + "0" * 40, "@v4"), "a commit without a version": (" # v1.2.3", ""), "a script that has moved": ("tests/run", "tests/ran"),
           "rights for all": ("permissions: {}", "permissions: write-all"), "a job for ever": ("    timeout-minutes: 5\n", ""),
           "a name in a script": ("tests/run", "echo ${{ github.head_ref }}"), "a token": ("persist-credentials: false", "persist-credentials: true"),
           "a script that is none": ("tests/run", "tests/meson.build"), "a job that is not there": ("    steps:", "    needs: b\n    steps:")}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_of_a_workflow_is_found(fault):
    assert faults(GOOD) == []
    assert len(faults(GOOD.replace(*PLANTED[fault]))) == 1


@pytest.mark.parametrize("tool, arguments", [("actionlint", []), ("zizmor", ["--offline", "--no-progress"])])
def test_the_checkers_of_workflows_have_nothing_to_say(tool, arguments):
    """Neither is a package of Debian 12: they are asked where they are installed."""
    if not shutil.which(tool):
        pytest.skip("%s is not installed" % tool)
    done = subprocess.run([tool, *arguments, *WORKFLOWS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_before_a_commit_the_tests_of_the_house_run():
    hooks = [hook for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"] for hook in repo["hooks"]]
    assert [hook["entry"] for hook in hooks] == ["tests/run tests/house"]
    assert hooks[0]["always_run"] and not hooks[0]["pass_filenames"] and hooks[0]["language"] == "system"
    # It is what .ci/run begins with.
    assert "set -- tests/house tests/e2e" in (ROOT / "tests" / "run").read_text() and "\ntests/run ||" in (ROOT / ".ci" / "run").read_text()


def test_the_forms_of_issues_are_forms():
    """As docs.github.com has it ("Syntax for GitHub's form schema")."""
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert len(forms) == 2
    for path in forms:
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} <= set(form), path
        ids = [element["id"] for element in form["body"]]
        assert len(set(ids)) == len(ids) > 0
        assert all(element["type"] in ("textarea", "checkboxes") and element["attributes"].get("label") for element in form["body"]), path
    commands = {command for path in forms for command in re.findall(r"`torchprof (\w+)", path.read_text())}
    assert commands == {"doctor", "run"}


def tool_of_packaging(name):
    sys.path.insert(0, str(ROOT / "packaging"))
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "packaging" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


CHANGES = "# Changelog\n\n## [Unreleased]\n\n- later\n\n## [1.2.3] - 2026-01-02\n\n### Added\n\n- this\n\n## [1.2.2] - 2026-01-01\n\n- before\n"
MANUAL = '.TH TORCHPROF 1 "2026-01-02" "torchprof 1.2.3" "User Commands"\n'


def test_the_notes_of_a_release_are_its_part_of_the_changelog():
    notes = tool_of_packaging("notes").notes
    assert notes("v1.2.3", "1.2.3", CHANGES, MANUAL) == "### Added\n\n- this\n"
    for arguments in (("v1.2.4", "1.2.3", CHANGES, MANUAL), ("1.2.3", "1.2.3", CHANGES, MANUAL), ("v1.2.3", "1.2.3", CHANGES.replace("[1.2.3] - 2026-01-02", "[1.2.3]"), MANUAL),
                      ("v1.2.3", "1.2.3", CHANGES.replace("[1.2.3]", "[1.2.4]"), MANUAL), ("v1.2.3", "1.2.3", CHANGES, "torchprof 1.2.2")):
        with pytest.raises(ValueError):
            notes(*arguments)


def test_the_version_of_today_could_be_released():
    version = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
    done = subprocess.run([ROOT / "packaging" / "notes", "v" + version], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("### "), done.stderr
    assert "the tag is v0, and" in subprocess.run([ROOT / "packaging" / "notes", "v0"], capture_output=True, text=True).stderr


def test_what_people_look_for_is_there_and_is_linked():
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    for name in "SECURITY.md", "CODE_OF_CONDUCT.md":
        assert (ROOT / name).exists() and "](%s)" % name in contributing
    assert "## Releases" in contributing and "packaging/notes" in contributing
