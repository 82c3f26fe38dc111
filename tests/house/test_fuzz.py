"""What reads spools, trace files and limits under libFuzzer, ASan and UBSan."""
import re
import subprocess

import pytest

from conftest import BUILD, ROOT

# Seconds, and inputs at the least.
TARGETS = {"spool": (60, 200), "trace": (20, 200), "budget": (10, 1000)}


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_breaks_its_readers(target):
    seconds, least = TARGETS[target]
    done = subprocess.run([ROOT / "tests/fuzz/run", str(seconds), BUILD, target], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-8000:]
    executed, = re.findall(r"number_of_executed_units: (\d+)", done.stderr)
    assert int(executed) > least
