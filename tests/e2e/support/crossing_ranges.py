"""Random programs whose ranges cross functions, generators, coroutines, greenlets and each other.

    crossing_ranges.py SEED PROGRAMS OUT

Each range has a name of its own. OUT gets, as JSON, [name, a, b, c, d] for each: clock readings just before and just after it is
entered, and just before and just after it is left; and the readings before and after each prof.step().
"""
import asyncio
import contextlib
import json
import random
import sys
import threading
import time

import torch
from torch.profiler import record_function

try:
    import greenlet
except ImportError:
    greenlet = None

random.seed(int(sys.argv[1]))
now = time.time_ns
ranges, steps = [], []
seen = threading.local()
x = torch.ones(2)


class Range:
    """A record_function with its own clock."""
    made = 0

    def __init__(self):
        Range.made += 1
        self.row = ["range %d" % Range.made]
        self.range = record_function(self.row[0])

    def begin(self):
        before = now()
        self.range.__enter__()
        self.row += before, now()

    def end(self):
        before = now()
        self.range.__exit__(None, None, None)
        self.row += before, now()
        ranges.append(self.row)

    def __enter__(self):
        self.begin()
        work()
        return self

    def __exit__(self, *error):
        work()
        self.end()


def work():
    for _ in range(random.randrange(3)):
        torch.add(x, x)


@contextlib.contextmanager
def managed():
    work()
    with Range():
        work()
        yield
        work()


class Odd(Exception):
    pass


def some(depth):
    """What a program does: itself, or another of these inside it."""
    work()
    if depth > 0:
        random.choice(KINDS)(depth - 1)
    work()


def plain(depth):
    with Range():
        some(depth)


def by_manager(depth):
    with managed():
        some(depth)


def by_stack(depth):
    with contextlib.ExitStack() as stack:
        for _ in range(random.randrange(1, 3)):
            stack.enter_context(Range())
            some(depth)


def across_functions(depth):
    open_ranges = []

    def start():
        open_ranges.append(Range())
        open_ranges[-1].begin()
        some(depth // 2)

    def stop():
        some(depth // 2)
        open_ranges.pop(random.randrange(len(open_ranges))).end()
        work()
    for _ in range(random.randrange(1, 4)):
        start()
        some(depth // 2)
    while open_ranges:
        stop()


def crossing(depth):
    a, b = Range(), Range()
    a.begin()
    some(depth)
    b.begin()
    work()
    a.end()
    some(depth)
    b.end()


def by_generator(depth):
    def numbers(n):
        with Range():
            for i in range(n):
                some(depth // 2)
                yield i
    several = [numbers(random.randrange(1, 4)) for _ in range(2)]
    while several:
        each = random.choice(several)
        if random.random() < 0.2:
            each.close()
            several.remove(each)
        elif next(each, None) is None:
            several.remove(each)


def by_coroutines(depth):
    async def request():
        with Range():
            for _ in range(random.randrange(3)):
                some(depth // 2)
                await asyncio.sleep(0)

    async def server():
        await asyncio.gather(*[request() for _ in range(random.randrange(1, 4))])
    if getattr(seen, "loop", False):
        return some(depth)
    seen.loop = True
    try:
        asyncio.run(server())
    finally:
        seen.loop = False


def by_greenlets(depth):
    if greenlet is None:
        return some(depth)

    def body():
        with Range():
            some(depth // 2)
            here.switch()
            some(depth // 2)
    here = greenlet.getcurrent()
    several = [greenlet.greenlet(body) for _ in range(random.randrange(1, 3))]
    for _ in range(2):
        for each in several:
            each.switch()


def by_exception(depth):
    try:
        with Range():
            some(depth)
            raise Odd
    except Odd:
        work()


def by_callback(depth):
    left = []

    def key(value):
        if value % 2:
            left.append(Range())
            left[-1].begin()
        else:
            while left:
                left.pop().end()
        some(depth // 2)
        return -value
    sorted(range(random.randrange(1, 5)), key=key)
    for each in left:
        each.end()


def by_thread(depth):
    thread = threading.Thread(target=plain, args=(depth,))
    thread.start()
    thread.join()


KINDS = plain, by_manager, by_stack, across_functions, crossing, by_generator, by_coroutines, by_greenlets, by_exception, by_callback, by_thread


def step(prof):
    before = now()
    prof.step()
    steps.append([before, now()])


def main():
    schedule = torch.profiler.schedule(wait=1, warmup=0, active=1 << 30)
    prof = torch.profiler.profile(schedule=schedule) if sys.argv[4:] != ["no steps"] else None
    if prof is not None:
        prof.schedule = lambda number: torch.profiler.ProfilerAction.NONE  # it marks steps, and records nothing
        before = now()
        prof.__enter__()
        steps.append([before, now()])
    for _ in range(int(sys.argv[2])):
        some(random.randrange(1, 5))
        if prof is not None and random.random() < 0.5:
            step(prof)
            some(1)
    if prof is not None:
        before = now()
        prof.__exit__(None, None, None)
        steps.append([before, now()])


main()
with open(sys.argv[3], "w") as out:
    json.dump({"ranges": ranges, "steps": steps}, out)
