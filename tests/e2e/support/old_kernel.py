"""usage: old_kernel.py COMMAND...: starts a command that sees the system calls of Linux 4.18, the kernel of RHEL 8, and no newer ones.

A filter answers ENOSYS to those that are newer, and EINVAL to newer advice for madvise. Everything that the command starts is under it, too.
"""
import ctypes
import errno
import os
import sys

X86_64 = 0xC000003E
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 6
NUMBER, MACHINE, THIRD_ARGUMENT = 0, 4, 32
ALLOW, FAIL, KILL = 0x7FFF0000, 0x50000, 0x80000000
MADVISE = 28
NEWER = 335        # the last of 4.18 is rseq, 334
NEWER_ADVICE = 20  # the last of 4.18 is MADV_KEEPONFORK, 19
CODE = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, X86_64), (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER), (AT_LEAST, 4, 0, NEWER), (EQUAL, 0, 2, MADVISE),
        (LOAD, 0, 0, THIRD_ARGUMENT), (AT_LEAST, 2, 0, NEWER_ADVICE),
        (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FAIL | errno.ENOSYS), (RETURN, 0, 0, FAIL | errno.EINVAL)]


class Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class Program(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint16), ("filter", ctypes.POINTER(Filter))]


def main():
    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(len(CODE), (Filter * len(CODE))(*CODE))
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:
        sys.exit("no filter may be set here: " + os.strerror(ctypes.get_errno()))
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
