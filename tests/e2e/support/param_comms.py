"""collective(...) is what ProcessGroupNCCL does around each of its calls (RECORD_PARAM_COMMS), in a torch without NCCL: torch's own
ParamCommsDebugInfo, made by torch's own constructor, on the thread, and the range record_param_comms."""
import contextlib
import ctypes
import os

import torch

LIB = os.path.join(os.path.dirname(torch.__file__), "lib")
CPU, C10 = (ctypes.CDLL(os.path.join(LIB, name)) for name in ("libtorch_cpu.so", "libc10.so"))
STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
NEWER = "_ZN5torch19ParamCommsDebugInfoC1ESt5tupleIJ" + STRING + "S7_EEiOS7_llN3c1010ScalarTypeESt6vectorIlSaIlEESE_iii"
CONSTRUCTORS = {"1.13": "_ZN5torch19ParamCommsDebugInfoC1EiO" + STRING + "iiN3c1010ScalarTypeESt6vectorIlSaIlEESC_",
                "2.6": NEWER, "2.14": NEWER + "b"}
KEPT = []  # what torch points to; it must stay


def words(count):
    KEPT.append((ctypes.c_uint64 * count)())
    return KEPT[-1]


def strings(*texts):
    """std::string one after the other, of at most 15 bytes each."""
    memory = words(4 * len(texts))
    for i, text in enumerate(texts):
        at = ctypes.addressof(memory) + 32 * i
        memory[4 * i], memory[4 * i + 1] = at + 16, len(text)
        ctypes.memmove(at + 16, text.encode() + b"\0", len(text) + 1)
    return memory


def vector(numbers):
    data, memory = words(len(numbers) + 1), words(3)
    for i, number in enumerate(numbers):
        data[i] = number
    begin = ctypes.addressof(data)
    memory[:] = [begin, begin + 8 * len(numbers), begin + 8 * len(numbers)] if numbers else [0, 0, 0]
    return memory


def debug_info(name, sent, received, dtype, rank, group, description, start, stride, size, split_in, split_out):
    memory = words(128)
    version, constructor = [(v, getattr(CPU, symbol)) for v, symbol in CONSTRUCTORS.items() if hasattr(CPU, symbol)][0]
    head, tail = [], []
    if version != "1.13":  # a std::tuple has its last element first
        head, tail = [strings(description, group)], [ctypes.c_int(n) for n in (start, stride, size)]
    if version == "2.14":
        tail.append(ctypes.c_bool(False))
    constructor(memory, *head, ctypes.c_int(rank), strings(name), ctypes.c_long(sent), ctypes.c_long(received), ctypes.c_int8(dtype),
                vector(split_in), vector(split_out), *tail)
    return memory


@contextlib.contextmanager
def collective(name, sent, received, *, dtype=6, rank=1, group="0", description="default_pg", start=0, stride=1, size=2, split_in=(),
               split_out=()):
    try:
        kind = ctypes.c_uint64.in_dll(C10, "_ZN3c1013DebugInfoKind16PARAM_COMMS_INFOE")
    except ValueError:
        kind = ctypes.c_uint64(4)
    shared = words(2)
    shared[0] = ctypes.addressof(debug_info(name, sent, received, dtype, rank, group, description, start, stride, size, split_in, split_out))
    C10._ZN3c1020ThreadLocalDebugInfo5_pushENS_13DebugInfoKindESt10shared_ptrINS_13DebugInfoBaseEE(kind, shared)
    handle = torch.autograd._record_function_with_args_enter("record_param_comms", torch.ones(3))
    yield
    torch.autograd._record_function_with_args_exit(handle)
    C10._ZN3c1020ThreadLocalDebugInfo4_popENS_13DebugInfoKindE(words(2), kind)
