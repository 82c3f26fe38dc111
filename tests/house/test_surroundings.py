"""Whoever starts the tests, and wherever: what they start has the same surroundings."""
import json
import os
import subprocess
import sys

import pytest

from conftest import BUILD, INSTALLED, ROOT

import hostile

SAID = """
import json, os, resource, sys
sys.path.insert(0, sys.argv[1])
import conftest
print(json.dumps([dict(os.environ), conftest.clean_environment({"RANK": "1", "LANG": None}), os.umask(0), resource.getrlimit(resource.RLIMIT_NOFILE)[0], str(conftest.BUILD)]))
"""


@pytest.mark.parametrize("temporary, is_kept", [("/tmp/torchprof-1.2", True), ("/tmp/my files", False)])
def test_of_the_environment_what_is_listed_stays_and_nothing_else(tmp_path, temporary, is_kept):
    env = {name: str(value) for name, value in {**hostile.environment(tmp_path, tmp_path, temporary), "TORCHPROF_BUILD": "/of/mine"}.items()}
    kept = {"PATH": env["PATH"], "HOME": str(tmp_path), **({"TMPDIR": temporary} if is_kept else {})}
    done = subprocess.run([sys.executable, "-c", SAID, ROOT / "tests"], env=env, capture_output=True, text=True, check=True, preexec_fn=hostile.before_exec)
    around, clean, umask, files, build = json.loads(done.stdout)
    around = {name: value for name, value in around.items() if not name.startswith(("TESTED_", "GIT_CONFIG_"))}
    assert around == {**kept, "LANG": "C.UTF-8"}
    assert clean == {**kept, "RANK": "1", "PYTHONHASHSEED": "0"}
    assert (umask, files, build) == (0o022, 1024, "/of/mine")


# Some of each kind: users and directories, a terminal, what the environment says of ranks, Python's paths, the simulated GPU, native stacks.
SAMPLE = ["program/test_limits.py::test_a_process_of_another_user_is_not_lost_in_silence", "program/test_limits.py::test_the_run_is_for_its_user_alone",
          "processes/test_tree.py::test_a_child_that_loses_its_environment_is_traced", "processes/test_tree.py::test_a_child_sees_its_own_variables_and_ours_only",
          "launcher/test_launcher.py::test_ld_preload_and_pythonpath_keep_the_users_entries_in_their_order",
          "launcher/test_launcher.py::test_dry_run_prints_an_environment_for_plain_env", "launcher/test_top.py::test_a_narrow_terminal_and_another_size",
          "files/test_advice.py::test_zero_grad", "gpu/test_gpu_trace.py::test_each_kind_of_work_is_in_the_trace"]


@pytest.mark.slow
def test_a_sample_of_the_tests_passes_in_surroundings_that_do_not_suit_it():
    told = {"TORCHPROF_INSTALLED": INSTALLED} if INSTALLED else {}
    done = subprocess.run([sys.executable, ROOT / "tests" / "hostile.py", *("tests/e2e/" + test for test in SAMPLE)], capture_output=True, text=True,
                          env={**os.environ, "TORCHPROF_BUILD": str(BUILD), **told})
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr
