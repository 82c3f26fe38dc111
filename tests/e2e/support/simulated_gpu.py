"""What programs under test import to use the simulated GPU of tests/cupti_sim: ctypes alone. SIM names the library."""
import ctypes
import os

sim = ctypes.CDLL(os.environ["SIM"])
sim.simStorm.restype = ctypes.c_double
sim.simUntilWritten.restype = ctypes.c_bool
for name, types in {"simLaunch": "pIQ", "simGraphLaunch": "pIIQ", "simMemcpy": "BQI", "simMemcpyPeer": "iQI", "simMemset": "IQI",
                    "simMalloc": "QQi", "simDriverLaunch": "IpIQ", "simLaunchThroughBoth": "pIQ", "simCall": "III", "simSlowCall": "IIQ", "simOverhead": "IQ",
                    "simMemoryPool": "IQQQ", "simStreamPriority": "Ii", "simSetWallClock": "q", "simEnvironment": "IIIIII"}.items():
    getattr(sim, name).argtypes = [{"p": ctypes.c_char_p, "I": ctypes.c_uint32, "Q": ctypes.c_uint64, "B": ctypes.c_uint8,
                                    "i": ctypes.c_int, "q": ctypes.c_int64}[t] for t in types]


def everything():
    """One of each, on two devices; 3 + 4 + 1 + 1 kernels."""
    sim.simInit(2)
    for _ in range(3):
        sim.simLaunch(b"_Z6matmulPfS_", 7, 20000)
    sim.simMemcpy(1, 4096, 7)
    sim.simMemcpy(2, 8192, 7)
    sim.simMemset(255, 1024, 7)
    sim.simGraphLaunch(b"_Z4nodev", 4, 13, 1000)
    event = sim.simEventCreate()
    sim.simEventRecord(event, 13)
    sim.simStreamWaitEvent(7, event)
    sim.simEventSynchronize(event)
    sim.simMalloc(0x7000, 512, 0)
    sim.simMalloc(0x7000, 512, 1)
    sim.simMemcpyPeer(1, 2048, 7)
    sim.simDriverLaunch(652, b"_Z6drivenv", 7, 1000)  # cuLaunchKernelEx
    sim.simCall(4, 549, 0)  # cuMemCreate
    sim.simOverhead(1, 4000)  # of the driver's compiler
    sim.simMemoryPool(1, 0x9000, 65536, 1024)
    sim.simEnvironment(2, 61, 0, 0, 0, 0)  # degrees
    sim.simStreamSynchronize(7)
    sim.simSetDevice(1)
    sim.simLaunch(b"_Z5otherv", 7, 1000)
    sim.simDeviceSynchronize()
    sim.simSetDevice(0)
    sim.simDeviceSynchronize()


def doubled():
    """A function of autograd that launches a kernel in its forward and one in its backward."""
    import torch

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            sim.simLaunch(b"_Z14double_forwardv", 7, 5000)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            sim.simLaunch(b"_Z15double_backwardv", 7, 5000)
            return grad * 2
    return Doubled
