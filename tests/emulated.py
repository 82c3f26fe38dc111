"""End-to-end tests that an emulator of another processor (qemu-user 7.2) cannot run, and why. tests/conftest.py skips them there with the reason.

    {reason: [test, ...]}    a test is FILE::NAME below tests/e2e, all its parameters; or FILE alone
"""
NOT_EMULATED = {
    "its seconds are not a processor's": [
        "files/test_advice.py::test_slow_rank",
        "files/test_formats.py::test_run_writes_every_format_that_it_is_asked_for",
        "files/test_other_files.py::test_diff_of_files_of_different_tools",
        "gpu/test_gpu_clock.py::test_a_device_whose_clock_is_wrong_is_said_and_not_hidden",
        "torch/test_key_averages.py::test_calls_by_shape_are_those_of_key_averages",
        "torch/test_key_averages.py::test_flops_by_shape_are_those_of_key_averages",
        "torch/test_key_averages.py::test_memory_is_that_of_key_averages",
        "torch/test_key_averages.py::test_memory_of_its_own_is_what_torch_profiler_recorded_in_each_operator",
        "processes/test_torchrun.py::test_each_rank_of_torchrun_is_traced_under_its_number",
        "program/test_lifecycle.py::test_a_launcher_that_is_killed_while_it_writes_leaves_the_records_and_no_half_trace",
        "program/test_lifecycle.py::test_a_trace_that_no_viewer_opens_is_announced_before_it_is_written",
        "program/test_lifecycle.py::test_an_export_that_takes_long_shows_itself_on_a_terminal",
        "program/test_lifecycle.py::test_long_work_after_the_end_shows_itself_on_a_terminal",
        "program/test_lifecycle.py::test_the_second_ctrl_c_after_the_end_leaves_the_spool",
    ],
    "the test calls C++ of torch by ctypes, as x86-64 hands over what has a destructor (tests/e2e/support/param_comms.py)": [
        "gpu/test_gpu_hangs.py::test_a_collective_that_one_rank_never_enters_is_named_with_that_rank",
        "torch/test_collectives.py",
    ],
    "it has no seccomp": ["program/test_seccomp.py"],
    "it has no ptrace, so no strace": [
        "launcher/test_launcher.py::test_a_short_command_costs_few_system_calls",
        "launcher/test_reused_directories.py::test_the_lists_of_an_earlier_run_are_gone_before_the_next_command_starts",
        "launcher/test_reused_directories.py::test_of_two_launchers_one_has_the_directory_and_the_other_leaves_it_alone",
        "program/test_ends.py::test_system_calls_that_are_held_up_lose_nothing",
        "stacks/test_native_gdb.py::test_stacks_are_those_that_gdb_finds",
    ],
    "it has no execveat, its vfork is a fork, and it answers some calls otherwise than Linux": [
        "processes/test_tree.py::test_a_child_that_loses_its_environment_is_traced",
        "processes/test_tree.py::test_errors_of_starting_a_program_are_libcs_own",
        "processes/test_tree.py::test_pointers_that_are_none_are_the_kernels_to_answer",
        "program/test_limits.py::test_a_program_that_cannot_reach_its_run_any_more_is_recorded_to_its_end",
        "program/test_old_kernel.py::test_everything_is_recorded",
    ],
    "a signal that ends a program makes it write a line of its own, for the launcher, too": [
        "program/test_ends.py::test_a_program_ends_as_it_does_without_us",
        "program/test_ends.py::test_a_program_with_torch_ends_as_it_does_without_us",
        "program/test_no_room.py::test_a_store_that_fails_ends_the_capture_alone",
    ],
    "one signal is its own": ["program/test_lifecycle.py::test_a_signal_to_the_launcher_reaches_the_command_once"],
    "it takes all signals itself, also those that a program has blocked": [
        "program/test_lifecycle.py::test_a_signal_to_the_group_reaches_the_command_once",
        "program/test_lifecycle.py::test_the_witness_of_signals_ends_with_the_launcher",
    ],
    "it limits no memory": [
        "files/test_hostile_files.py::test_where_memory_runs_out_a_line_says_so",
        "program/test_limits.py::test_a_limit_that_is_reached_is_a_line_and_the_program_goes_on",
    ],
    "memory, descriptors and the command line of a process are also its own": [
        "program/test_lifecycle.py::test_a_daemon_is_not_waited_for_and_its_spool_is_kept",
        "program/test_limits.py::test_with_20_files_a_program_gets_all_of_them_and_loses_no_event",
        "program/test_limits.py::test_without_threads_one_compressor_is_enough",
    ],
    "debuginfod is not in its root": ["stacks/test_native_debuginfod.py"],
    "sanitizers do not run under it": ["program/test_manners.py::test_a_program_under_a_sanitizer_runs_as_it_does_alone"],
}


def reason_for(node):
    """Of pytest's id of a test, "tests/e2e/FILE.py::test_name[parameters]"; None: it can run."""
    name = node.partition("[")[0]
    for reason, tests in NOT_EMULATED.items():
        if any(name.endswith("/" + test) or name.partition("::")[0].endswith("/" + test) for test in tests):
            return "under an emulator: " + reason
    return None
