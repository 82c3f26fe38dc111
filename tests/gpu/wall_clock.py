"""Steps and slews the machine's wall clock, as an administrator or a bad time server would, and puts it back."""
import ctypes
import time

ADJ_FREQUENCY = 2  # adjtimex(2): `freq` is in millionths, times 65536


class Timex(ctypes.Structure):
    _fields_ = [("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("rest", ctypes.c_byte * 256)]


class System:
    """What there is of a machine's clock. Tests give another one."""

    def now(self):
        return time.clock_gettime(time.CLOCK_REALTIME)

    def elapsed(self):
        return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)

    def set(self, seconds):
        time.clock_settime(time.CLOCK_REALTIME, seconds)

    def frequency(self, freq=None):
        """In adjtimex's unit; a number sets it."""
        t = Timex()
        if freq is not None:
            t.modes, t.freq = ADJ_FREQUENCY, freq
        if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(t)) < 0:
            raise OSError(ctypes.get_errno(), "adjtimex")
        return t.freq


class WallClock:
    """with WallClock() as clock: ... clock.disturb() ...; afterwards it is as it would have been.

    PermissionError where it may not be set.
    """
    DISTURBANCES = ["7.25 s forward", "500 ppm faster", "3.5 s back, 500 ppm slower", "no longer slewed"]

    def __init__(self, system=None):
        self.system, self.done = system or System(), []

    def __enter__(self):
        self.frequency = self.system.frequency()
        self.began, self.elapsed = self.system.now(), self.system.elapsed()
        self.system.frequency(self.frequency)  # is it allowed?
        return self

    def disturb(self):
        kind = len(self.done) % len(self.DISTURBANCES)
        if kind == 0:
            self.system.set(self.system.now() + 7.25)
        elif kind == 1:
            self.system.frequency(500 << 16)
        elif kind == 2:
            self.system.set(self.system.now() - 3.5)
            self.system.frequency(-500 << 16)
        else:
            self.system.frequency(self.frequency)
        self.done.append(self.DISTURBANCES[kind])

    def __exit__(self, *_):
        self.system.frequency(self.frequency)
        if self.done:
            self.system.set(self.began + self.system.elapsed() - self.elapsed)
