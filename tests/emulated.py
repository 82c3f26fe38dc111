"""End-to-end tests that an emulator of another processor (qemu-user) cannot run, and why. tests/conftest.py skips them there with the reason.

    {reason: [test, ...]}    a test is FILE::NAME below tests/e2e, all its parameters; or FILE alone
"""
NOT_EMULATED = {
}


def reason_for(node):
    """Of pytest's id of a test, "tests/e2e/FILE.py::test_name[parameters]"; None: it can run."""
    name = node.partition("[")[0]
    for reason, tests in NOT_EMULATED.items():
        if any(name.endswith("/" + test) or name.partition("::")[0].endswith("/" + test) for test in tests):
            return reason
    return None
