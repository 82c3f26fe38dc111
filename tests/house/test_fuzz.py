"""What reads spools, trace files and limits under libFuzzer, ASan and UBSan."""
import os
import re
import subprocess

import pytest

from conftest import BUILD, ROOT

# Seconds, and inputs at the least.
TARGETS = {"spool": (30, 100), "trace": (10, 100), "budget": (5, 500), "symbols": (5, 500), "run_dir": (10, 100)}


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_breaks_its_readers(target):
    seconds, least = TARGETS[target]
    # The same inputs each time, so that a failure can be repeated. New faults are searched for by hand, for longer.
    done = subprocess.run([ROOT / "tests/fuzz/run", str(seconds), BUILD, target], capture_output=True, text=True, env={**os.environ, "FUZZ_SEED": "1"})
    assert done.returncode == 0, done.stderr[-8000:]
    executed, = re.findall(r"number_of_executed_units: (\d+)", done.stderr)
    assert int(executed) > least


@pytest.mark.slow
def test_no_byte_of_a_spool_breaks_a_command(tmp_path):
    subprocess.run(["ninja", "-C", BUILD, "tests/fuzz/each_byte"], check=True, capture_output=True)
    program = BUILD / "tests/fuzz/each_byte"
    subprocess.run([program, "--seeds", tmp_path], check=True)
    for spool in tmp_path.iterdir():
        halves = [subprocess.Popen([program, spool, str(part), "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for part in range(2)]
        ends = [(half.communicate(), half.returncode) for half in halves]
        assert [status for _, status in ends] == [0, 0], ends
        assert sum(int(output) for (output, _), _ in ends) == spool.stat().st_size, spool
