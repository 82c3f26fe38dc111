"""A thread of ours looks at the others (--sample): lines, work and waits, and a program that behaves as without it."""
import collections
import json
import re
import struct

import pytest

import spool_records

STACK_NODE, SAMPLE, STRING, FUNCTION = 102, 103, 1, 4
UNKNOWN, SLEEP, LOCK, GIL, POLL, READ, WRITE, SOCKET, CHILD, DISK, OTHER = range(11)

Look = collections.namedtuple("Look", "tid stack period ran queued what name wait")  # stack: (function, line), innermost first; times in us


def looks(path):
    strings, functions, nodes, found = {0: ""}, {}, {0: None}, []
    for kind, record in spool_records.records(path):
        if kind == STRING:
            number, length = struct.unpack_from("<II", record, 8)
            strings[number] = record[len(record) - -(-length // 8) * 8:][:length].decode("utf8", "replace")
        elif kind == FUNCTION:
            functions[struct.unpack_from("<I", record, 8)[0]] = struct.unpack_from("<III", record, 12)
        elif kind == STACK_NODE:
            number, *node = struct.unpack_from("<IIII", record, 8)
            nodes[number] = node
        elif kind == SAMPLE:
            found.append(struct.unpack_from("<IIIIIIIB", record, 8))

    def stack(node):
        while node:
            caller, function, line = nodes[node]
            yield strings[functions[function][1] or functions[function][0]].rsplit(".", 1)[-1], line
            node = caller
    return [Look(tid, tuple(stack(node)), period, ran, queued, what, strings[name], wait)
            for tid, node, period, ran, queued, what, name, wait in found]


def of_largest(run):
    return looks(max(spool_records.spools(run), key=lambda path: path.stat().st_size))


# What a thread waits for, the line, and for how long.
WAITS = """
import os, queue, select, socket, subprocess, sys, tempfile, threading, time
held = threading.Lock(); held.acquire()
a, b = socket.socketpair()
r, w = os.pipe()
empty = queue.Queue()
def computes(t=0.5):
    began = time.thread_time()
    while time.thread_time() - began < t: pass
def sleeps(): time.sleep(0.6)
def locks(): held.acquire()
def receives(): a.recv(1)
def reads(): os.read(r, 1)
def polls(): select.select([r], [], [], 0.6)
def waits(): subprocess.run(["sleep", "0.6"])
def gets():
    try: empty.get(timeout=0.6)
    except queue.Empty: pass
release = lambda f: threading.Timer(0.6, f).start()
for what in (computes, sleeps, polls, waits, gets): what()
release(held.release); locks()
release(lambda: b.send(b"x")); receives()
release(lambda: os.write(w, b"x")); reads()
thread = threading.Thread(target=computes); thread.start(); computes(); thread.join()
"""
IN = {"sleeps": {SLEEP}, "locks": {LOCK}, "receives": {SOCKET}, "reads": {READ}, "polls": {POLL}, "waits": {CHILD, READ, POLL}, "gets": {LOCK}}


@pytest.mark.since(3, 11)
def test_work_and_waits_have_their_line_and_their_name(python, program, run_torchprof):
    run = run_torchprof([python.path, program(WAITS)], options=["--sample", "100"])
    assert run.status == 0, run.stderr
    found = of_largest(run)
    lines = {name: number for number, line in enumerate(WAITS.splitlines(), 1) for name in re.findall(r"^def (\w+)\(", line)}
    for name, waits in IN.items():
        here = [look for look in found if any(function == name for function, _ in look.stack)]
        assert {line for look in here for function, line in look.stack if function == name} <= {lines[name], lines[name] + 1, lines[name] + 2}, name
        rest = collections.Counter()
        for look in here:
            rest[look.wait] += look.period - look.ran - look.queued
        named = sum(us for wait, us in rest.items() if wait in waits)
        # The first look at a wait may come at its end, and on a busy machine some come late.
        assert named > 300_000 and named > 0.6 * sum(rest.values()), (name, rest)
    work = [look for look in found if look.stack and look.stack[0][0] == "computes"]
    assert 1_200_000 < sum(look.ran for look in work) < 1_800_000
    assert all(look.ran + look.queued <= look.period for look in found)
    waited = [look for look in found if look.wait == GIL]
    assert waited and any(look.what in {w.tid for w in work} for look in waited)  # two threads compute at the end


# Threads, code objects, deep stacks, generators and forks come and go while it looks as often as it can.
STRESS = """
import os, random, subprocess, sys, threading, time, warnings
warnings.simplefilter("always")
sys.setrecursionlimit(5000)
end = time.monotonic() + float(sys.argv[1])
def make(k):
    d = {}
    exec(compile("\\n" * (k * 10) + "def q%d(n):\\n  x = 0\\n  for i in range(n):\\n    x += i\\n    x ^= 3\\n  return x\\n" % k, "made%d" % k, "exec"), d)
    return d["q%d" % k]
def threads(k):
    all = [threading.Thread(target=lambda j=j: make((k + j) % 5000)(3000)) for j in range(8)]
    for t in all: t.start()
    for t in all: t.join()
def code(k): make(k % 5000)(1500)
def down(n): return down(n - 1) if n else 0
def deep(k): down(random.randrange(1200))
def generate(n):
    if n: yield from generate(n - 1)
    for i in range(5): yield i
def generators(k): sum(generate(20))
def is_programs(tid):
    try:
        with open("/proc/self/task/%s/comm" % tid) as name: return int(tid) != os.getpid() and not name.read().startswith("torchprof")
    except OSError: return False
def forks(k):
    # join() returns when the thread's work is over: the kernel may still count it.
    while any(map(is_programs, os.listdir("/proc/self/task"))): pass
    child = os.fork()
    if child == 0:
        down(50); os._exit(7)
    assert os.waitpid(child, 0)[1] == 7 << 8
    subprocess.run(["true"], preexec_fn=lambda: None, check=True)
k = 0
while time.monotonic() < end:
    for what in (threads, code, deep, generators):
        for _ in range(20 if what is not threads else 2):
            k += 1
            what(k)
    forks(k)
open_files = sorted(os.listdir("/proc/self/fd"))
for _ in range(4): threading.Thread(target=lambda: [down(20) for _ in range(10**9)], daemon=True).start()
print("files", open_files, flush=True)
time.sleep(0.3)
"""


@pytest.mark.since(3, 11)
def test_a_program_under_stress_goes_on_as_without_it(python, program, run_torchprof, run_bare):
    run = run_torchprof([python.path, program(STRESS), 4], options=["--sample", "5000", "--python", "modules"])
    bare = run_bare([python.path, program(STRESS), 0])
    assert (run.status, run.stdout) == (bare.returncode, bare.stdout.decode()), run.stderr
    # From 3.12 on Python warns where it forks with more than one thread.
    assert "Warning" not in run.stderr, run.stderr
    found = of_largest(run)
    assert len(found) > 200
    # Each made function lies in lines of its own: whose code it is and its line belong together.
    for look in found:
        for name, line in look.stack:
            if match := re.fullmatch(r"q(\d+)", name):
                assert int(match[1]) * 10 < line <= int(match[1]) * 10 + 6, (name, line)


@pytest.mark.since(3, 11)
def test_lines_of_code_that_is_gone_at_once_are_its_own(python, program, run_torchprof):
    """What a code object was is read from memory that the program may have given to something else meanwhile."""
    run = run_torchprof([python.path, program("""
import marshal, threading, time, types
end = time.monotonic() + 3
def made(k):
    body = "".join("  x = len(str(x + %d))\\n" % i for i in range(k % 30 + 1))
    return marshal.dumps(compile("\\n" * (k * 100) + "def q%d(x):\\n" % k + body + "  return x\\n", "made%d" % k, "exec").co_consts[0])
codes = [made(k) for k in range(300)]
def outer(f): return inner(f)
def inner(f): return f(1)
def work(k):
    while time.monotonic() < end:
        for _ in range(100):
            k = (k + 1) % len(codes)
            outer(types.FunctionType(marshal.loads(codes[k]), {"len": len, "str": str}))
            bytes(range(k % 256))
threads = [threading.Thread(target=work, args=(i * 100,)) for i in range(3)]
for t in threads: t.start()
for t in threads: t.join()
""")], options=["--sample", "5000", "--python", "modules"])
    assert run.status == 0, run.stderr
    lines = [(int(match[1]), line) for look in of_largest(run) for name, line in look.stack if (match := re.fullmatch(r"q(\d+)", name))]
    assert lines and [at for at in lines if not 0 < at[1] - at[0] * 100 <= at[0] % 30 + 3] == []


@pytest.mark.since(3, 11)
def test_a_child_that_works_has_samples_of_its_own_and_one_that_ends_at_once_no_spool(python, program, run_torchprof):
    run = run_torchprof([python.path, program("""
import os, time
def work():
    began = time.thread_time()
    while time.thread_time() - began < 0.6: pass
work()
for busy in False, True:
    child = os.fork()
    if child == 0:
        if busy: work()
        os._exit(0)
    os.waitpid(child, 0)
""")], options=["--sample", "100", "--python", "modules"])
    assert run.status == 0, run.stderr
    spools = spool_records.spools(run)
    assert len(spools) == 2
    for path in spools:
        assert any(look.stack and look.stack[0][0] == "work" for look in looks(path)), path


@pytest.mark.since(3, 11)
def test_threads_that_fork_at_the_same_time_leave_one_thread_of_ours(python, program, run_torchprof):
    run = run_torchprof([python.path, program("""
import os, subprocess, threading, time
def is_ours(tid):
    try: return open("/proc/self/task/%s/comm" % tid).read() == "torchprof stack\\n"
    except OSError: return False  # it has ended
def ours(): return sum(map(is_ours, os.listdir("/proc/self/task")))
most = [0]
def forks():
    for i in range(25):
        child = os.fork()
        if child == 0: os._exit(ours() > 1)
        assert os.waitpid(child, 0)[1] == 0
        subprocess.run(["true"])
        most.append(ours())
threads = [threading.Thread(target=forks) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
while ours() == 0: time.sleep(0.001)  # a thread has its name when it runs for the first time
print(max(most), ours())
""")], options=["--sample", "2000", "--python", "modules"])
    assert run.status == 0 and run.stdout in ("0 1\n", "1 1\n"), (run.stdout, run.stderr)


@pytest.mark.since(3, 11)
def test_a_process_that_forks_all_the_time_has_samples(python, program, run_torchprof):
    """Each fork ends our thread and starts it again: that it lived for a fifth of a second is of the process."""
    run = run_torchprof([python.path, program("""
import os, time
began = time.monotonic()
while time.monotonic() - began < 1:
    child = os.fork()
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
    until = time.monotonic() + 0.05
    while time.monotonic() < until: pass
""")], options=["--sample", "500", "--python", "modules"])
    assert run.status == 0, run.stderr
    assert of_largest(run)


@pytest.mark.since(3, 11)
def test_what_it_costs_stays_in_its_budget_with_many_idle_threads(python, program, run_torchprof):
    run = run_torchprof([python.path, program("""
import os, threading, time
end = threading.Event()
threads = [threading.Thread(target=end.wait) for _ in range(300)]
for t in threads: t.start()
time.sleep(4)
ours = [t for t in os.listdir("/proc/self/task") if open("/proc/self/task/%s/comm" % t).read() == "torchprof stack\\n"]
ran, _, _ = open("/proc/self/task/%s/schedstat" % ours[0]).read().split()
print(int(ran))
end.set()
for t in threads: t.join()
""")], options=["--sample", "50", "--python", "modules"])
    assert run.status == 0, run.stderr
    # A hundredth, what it may take at once, and what a busy machine makes of its last rounds.
    assert int(run.stdout) < 4e9 * 0.01 + 50e6 + 100e6


@pytest.mark.since(3, 11)
def test_on_a_busy_machine_what_a_thread_waits_for_a_processor_is_all_that_the_kernel_counts(python, program, run_torchprof):
    """The kernel counts it when the thread runs again, which is seldom between the same two looks."""
    run = run_torchprof([python.path, program("""
import os, subprocess, sys, threading, time
while not (ours := [t for t in os.listdir("/proc/self/task") if open("/proc/self/task/%s/comm" % t).read() == "torchprof stack\\n"]): time.sleep(0.01)
def wait_for_looks():
    looks = lambda: int(open("/proc/self/task/%s/schedstat" % ours[0]).read().split()[2])
    until = looks() + 5
    while looks() < until: time.sleep(0.01)
wait_for_looks()  # what was before the first one is not known
others = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(3 * os.cpu_count())]
def counted(): return int(open("/proc/thread-self/schedstat").read().split()[1])
def work(before):
    began = time.thread_time()
    while time.thread_time() - began < 0.2 or counted() - before < 5e8: pass
before = counted()
work(before)
print(threading.get_native_id(), counted() - before)
for other in others: other.kill()
wait_for_looks()  # what came after the last one is known at the next one
""")], options=["--sample", "50", "--python", "modules"])
    assert run.status == 0, run.stderr
    tid, counted = map(int, run.stdout.split())
    seen = [look for path in spool_records.spools(run) for look in looks(path) if look.tid == tid]
    assert sum(look.queued for look in seen) > 0.8 * counted / 1000, (counted, seen)
    seen = [look for look in seen if look.stack and look.stack[0][0] in ("work", "counted")]
    assert sum(look.period - look.ran - look.queued for look in seen) < 0.2 * sum(look.period for look in seen), seen


# A second in work(), so that there is time to look at it.
WORKS = """
import time
def work():
    began = time.thread_time()
    while time.thread_time() - began < 0.5: pass
work()
"""


@pytest.mark.once
@pytest.mark.parametrize("options, with_torch, alone", [([], True, False), (["-w", "all"], True, False), (["-w", "after=0s"], False, False),
                                                        (["--sample", "off"], False, False), (["-w", "after=0s", "--sample", "50"], True, True),
                                                        (["--python", "off"], False, False)])
def test_it_looks_where_all_or_typical_parts_of_a_run_with_torch_are_recorded(torch_python, program, run_torchprof, options, with_torch, alone):
    for imports, expected in ("import torch", with_torch), ("", alone):
        run = run_torchprof([torch_python, program(imports + WORKS)], options=options)
        assert run.status == 0, run.stderr
        assert any(look.stack and look.stack[0][0] == "work" for path in spool_records.spools(run) for look in looks(path)) == expected
        assert "samples" not in run.stderr, run.stderr


@pytest.mark.since(3, 11)
def test_sockets_have_their_address_and_children_their_command(python, program, run_torchprof):
    run = run_torchprof([python.path, program("""
import socket, subprocess, threading
server = socket.create_server(("127.0.0.1", 0))
def later(f): threading.Timer(0.5, f).start()
def accepts(): server.accept()
later(lambda: socket.create_connection(server.getsockname())); accepts()
here = socket.create_connection(server.getsockname()); there, _ = server.accept()
def receives(): here.recv(1)
later(lambda: there.send(b"x")); receives()
def times_out():
    here.settimeout(0.5)
    try: here.recv(1)
    except TimeoutError: pass
times_out()
def child(): subprocess.Popen(["sleep", "0.5"]).wait()
child()
print(server.getsockname()[1])
""")], options=["--sample", "100"])
    assert run.status == 0, run.stderr
    address = "127.0.0.1:" + run.stdout.strip()
    waited = collections.Counter()
    for look in of_largest(run):
        for function, _ in look.stack:
            waited[function, look.wait, look.name] += look.period - look.ran - look.queued
    for where in [("accepts", SOCKET, "socket listening at " + address), ("receives", SOCKET, "socket " + address),
                  ("times_out", POLL, "socket " + address), ("child", CHILD, "sleep 0.5")]:
        assert waited[where] > 250_000, (where, waited)


@pytest.mark.since(3, 11)
def test_what_the_kernel_refuses_to_a_process_with_threads_is_as_without_it(python, program, run_torchprof, run_bare):
    """unshare() of a user's namespace wants a process of one thread; afterwards it goes on looking."""
    text = program("""
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
print(libc.unshare(0x10000000), ctypes.get_errno())  # CLONE_NEWUSER
def work():
    began = time.thread_time()
    while time.thread_time() - began < 0.5: pass
work()
""")
    run, bare = run_torchprof([python.path, text], options=["--sample", "100"]), run_bare([python.path, text])
    assert (run.status, run.stdout) == (bare.returncode, bare.stdout.decode()), run.stderr
    assert "lost" not in run.stderr, run.stderr
    assert sum(look.ran for look in of_largest(run) if look.stack and look.stack[0][0] == "work") > 300_000


WITHOUT_TORCH = """
import time
def fetch():
    time.sleep(0.02)
def crunch():
    began = time.thread_time()
    while time.thread_time() - began < 0.02: pass
for _ in range(40): %s()
"""


@pytest.mark.once
@pytest.mark.since(3, 11)
@pytest.mark.parametrize("function, found", [("fetch", "fetch sleeps: "), ("crunch", "crunch takes ")])
def test_of_a_program_without_torch_work_is_told_from_a_wait_only_where_somebody_looked(python, program, run_torchprof, torchprof, function, found):
    text = program(WITHOUT_TORCH % function)

    def advice(options):
        run = run_torchprof([python.path, text], options=options)
        return json.loads(torchprof("report", run.directory, "-t", "advice", "--json").stdout)["tables"][0]

    said = advice([])
    assert not said["rows"] and "): %s, " % function in said["remarks"][0] and "--sample 50" in said["remarks"][0], said
    # Where the thread that looks has no processor there are too few looks, and that is said.
    for _ in range(10):
        said = advice(["--sample", "50"])
        if not said["rows"] or "not known" not in said["rows"][0]["finding"]:
            break
    assert said["rows"][0]["finding"].startswith(found) and "not known" not in said["rows"][0]["finding"], said
