"""A Python that has packages of PyPI."""
import subprocess
import sys

import pytest


def python_with(modules, packages, place):
    """This Python where it has the modules, or that of an environment at `place` into which the packages are installed; else the test is skipped."""
    if subprocess.run([sys.executable, "-c", "import " + ", ".join(modules)], capture_output=True).returncode == 0:
        return sys.executable
    made = subprocess.run([sys.executable, "-m", "virtualenv", "-q", place], capture_output=True)
    python = place / "bin" / "python"
    install = [python, "-m", "pip", "-q", "install", "--timeout", "20", "--retries", "1", *packages]
    if made.returncode or subprocess.run(install, capture_output=True).returncode:
        pytest.skip("%s are neither here nor can they be installed from PyPI" % ", ".join(packages))
    return python
