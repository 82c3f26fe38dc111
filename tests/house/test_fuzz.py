"""The reader of spools under libFuzzer, ASan and UBSan."""
import re
import subprocess

import pytest

from conftest import BUILD, ROOT

SECONDS = 60


@pytest.mark.slow
def test_no_spool_breaks_its_readers():
    done = subprocess.run([ROOT / "tests/fuzz/run", str(SECONDS), BUILD], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-8000:]
    executed = int(re.search(r"number_of_executed_units: (\d+)", done.stderr).group(1))
    assert executed > 1000
