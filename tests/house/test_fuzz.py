"""What reads spools and trace files under libFuzzer, ASan and UBSan."""
import re
import subprocess

import pytest

from conftest import BUILD, ROOT

SECONDS = 20


@pytest.mark.slow
def test_no_spool_and_no_trace_file_breaks_its_readers():
    done = subprocess.run([ROOT / "tests/fuzz/run", str(SECONDS), BUILD], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-8000:]
    executed = [int(units) for units in re.findall(r"number_of_executed_units: (\d+)", done.stderr)]
    assert len(executed) == 2 and min(executed) > 200
