"""What examples/ci does to a CI job: the commands of its workflow files, run as a runner would, around a job that knows nothing of torchprof."""
import os
import subprocess
import sys
import xml.etree.ElementTree

import pytest
import yaml

from conftest import PATIENCE, ROOT, clean_environment
from test_diff import TRAIN

pytestmark = pytest.mark.once

CI = ROOT / "examples" / "ci"


@pytest.fixture
def runner(launcher, tmp_path):
    """A checkout with ci/ in it; runner.step(COMMAND) runs a step of GitHub's, with the variables that earlier ones wrote."""
    (tmp_path / "ci").symlink_to(CI)
    (tmp_path / "train.py").write_text(TRAIN)

    class Runner:
        path = tmp_path
        files = {name: tmp_path / name for name in ("GITHUB_ENV", "GITHUB_STEP_SUMMARY")}

        def step(self, command):
            written = self.files["GITHUB_ENV"].read_text().splitlines() if self.files["GITHUB_ENV"].exists() else []
            env = clean_environment({"PATH": "%s:%s" % (launcher.parent, os.environ["PATH"])})
            env.update(line.split("=", 1) for line in written)
            env.update({name: str(path) for name, path in self.files.items()})
            return subprocess.run(["bash", "-e", "-o", "pipefail", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE)

        def job(self, extra):
            for path in self.files.values():
                path.unlink(missing_ok=True)
            begin = self.step('ci/torchprof-ci begin >> "$GITHUB_ENV"')
            assert begin.returncode == 0, begin.stderr
            test = self.step("%s train.py %d" % (sys.executable, extra))
            assert (test.returncode, test.stdout, test.stderr) == (0, "", "")
            return self.step("ci/torchprof-ci end")
    return Runner()


def test_a_job_without_a_baseline_passes_then_equals_it_then_fails_when_an_operator_is_called_more(runner):
    first = runner.job(1)
    assert first.returncode == 0 and "no torchprof-base to compare with" in first.stdout, first.stderr
    assert list((runner.path / "torchprof-run").glob("trace.json.gz"))
    runner.step("cp -r torchprof-run torchprof-base && rm -r torchprof-run")

    # Times are another machine's business in this test: it may be loaded.
    limits = 'export PROFILE_LIMITS="--fail-over 5 --metric calls,memory"; '
    runner.job(1)
    same = runner.step(limits + "ci/torchprof-ci end")
    assert same.returncode == 0 and ", none past its limit" in same.stdout, same.stdout + same.stderr
    runner.step("rm -r torchprof-run")

    slower = runner.job(300)
    assert slower.returncode == 1
    assert "calls: aten::cumsum: calls per step 1 -> 300" in slower.stdout
    assert "- **calls** `aten::cumsum` calls per step 1 -> 300" in runner.files["GITHUB_STEP_SUMMARY"].read_text()
    failed = [case for case in xml.etree.ElementTree.parse(runner.path / "torchprof-junit.xml").iter("testcase") if case.find("failure") is not None]
    assert "aten::cumsum" in {case.get("name") for case in failed}


def test_the_script_says_how_it_is_called(runner):
    done = runner.step("ci/torchprof-ci")
    assert done.returncode == 2 and "torchprof-ci begin" in done.stderr and "PROFILE_BASE" in done.stderr


def traces(runner):
    return list((runner.path / "torchprof-run").glob("trace.json.gz"))


def python(text):
    return "%s -c '%s'" % (sys.executable, text)


# A job's tests: what passes, and what fails. Without torch: quick.
TESTS = [(python("def passes(): pass\npasses()"), 0), (python("def fails(): raise SystemExit(3)\nfails()"), 3)]


@pytest.mark.parametrize("test, status", TESTS, ids=["passes", "fails"])
def test_githubs_workflow_keeps_the_trace_whether_or_not_the_tests_pass(runner, test, status):
    """As a runner does: a step without `if` runs where no earlier one failed, `always()` in any case."""
    steps = yaml.safe_load((CI / "github.yml").read_text())["jobs"]["test"]["steps"]
    commands = [(step["run"], step.get("if", "success()")) for step in steps if "run" in step and "refs/heads/main" not in step.get("if", "")]
    assert [command for command, _ in commands] == ['ci/torchprof-ci begin >> "$GITHUB_ENV"', "python3 -m pytest", "ci/torchprof-ci export", "ci/torchprof-ci end"]
    failed, ran = [], {}
    for command, condition in commands:
        if failed and condition != "always()":
            continue
        done = ran[command] = runner.step(test if command == "python3 -m pytest" else command)
        if done.returncode:
            failed.append(done.returncode)
    assert failed == [status] * bool(status) and len(traces(runner)) == 1, ran
    assert ("ci/torchprof-ci end" in ran) == (status == 0)


@pytest.mark.parametrize("test, status", TESTS, ids=["passes", "fails"])
def test_gitlabs_job_keeps_the_trace_whether_or_not_the_tests_pass(runner, launcher, test, status):
    """As a runner does: before_script and script in one shell, after_script in another, whatever came of the first."""
    job = yaml.safe_load((CI / "gitlab.yml").read_text())["test"]
    assert job["script"] == ["python3 -m pytest", "ci/torchprof-ci end"] and job["artifacts"]["when"] == "always"
    variables = {name: value.replace("$CI_PROJECT_DIR", str(runner.path)) for name, value in job["variables"].items()}
    env = clean_environment({"PATH": "%s:%s" % (launcher.parent, os.environ["PATH"]), **variables})

    def shell(lines):
        return subprocess.run(["sh", "-e", "-c", "\n".join(lines)], cwd=runner.path, env=env, capture_output=True, text=True, timeout=PATIENCE)
    done = shell(job["before_script"] + [test if line == "python3 -m pytest" else line for line in job["script"]])
    after = shell(job["after_script"])
    assert (done.returncode, after.returncode) == (status, 0), (done, after)
    assert len(traces(runner)) == 1 and ("nothing is judged" in done.stdout) == (status == 0)
