"""Functions and C calls that only wait: every CPython's are known by their names (formats/trace/waiting.h), and left out of what people see."""
import collections
import json
import re

import pytest

# Each waits at least MIN by itself; nothing else in the program takes as long.
PROGRAM = """
import asyncio, concurrent.futures, multiprocessing, os, queue, select, selectors, socket, subprocess, sys, threading, time
MIN = 0.1
def later(call, *arguments):
    threading.Timer(MIN, call, arguments).start()
def child(pipe):
    time.sleep(MIN)
    pipe.send(1)
def wait_for_all():
    q = queue.Queue()
    later(q.put, 1)
    q.get()
    q = queue.SimpleQueue()
    later(q.put, 1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(q.get).result()
    event = threading.Event()
    later(event.set)
    event.wait()
    thread = threading.Timer(MIN, int)
    thread.start()
    thread.join()
    context = multiprocessing.get_context("fork")
    semaphore = context.Semaphore(0)
    later(semaphore.release)
    semaphore.acquire()
    here, there = context.Pipe()
    process = context.Process(target=child, args=(there,))
    process.start()
    here.recv()
    process.join()
    subprocess.run(["sleep", str(MIN)])
    server = socket.create_server(("127.0.0.1", 0))
    later(socket.create_connection, server.getsockname())
    server.accept()
    asyncio.run(asyncio.sleep(MIN))
    selectors.DefaultSelector().select(MIN)
wait_for_all()
"""
# By file and function: `wait_for_all` itself makes some C calls that wait.
EXPECTED = {
    "functions": {"threading.py: wait", "selectors.py: select", "multiprocessing/connection.py: _recv", "socket.py: accept"},
    "calls": {"<built-in method acquire of _thread.lock object>", "<built-in method acquire of _multiprocessing.SemLock object>",
              "<built-in method get of _queue.SimpleQueue object>", "<built-in function sleep>", "<built-in function waitpid>",
              "<built-in method poll of select.epoll object>", "<built-in method _accept of socket object>"},  # _socket.socket since 3.12
}


@pytest.mark.parametrize("recorded", ["functions", "calls"])
def test_waits_are_known_and_left_out_for_people(run_torchprof, python, torchprof, program, recorded):
    run = run_torchprof([python.path, program(PROGRAM)], options=["-q", "--python", recorded])
    assert run.status == 0, run.stderr
    rows = json.loads(torchprof("report", run.directory, "-t", "python", "--json").stdout)["tables"][0]["rows"]
    waited = collections.Counter()
    for row in rows:
        if row["waits"]:
            waited[re.sub(r"\(\d+\): ", ": ", row["name"]).replace("_socket.", "")] += row["self_ns"]
    assert all(waited[name] >= 50_000_000 for name in EXPECTED[recorded]), waited
    assert not any(row["waits"] for row in rows if row["name"].endswith((": wait_for_all", ": child")))
    assert {row["self_percent"] for row in rows if row["waits"]} == {None}

    shown = torchprof("report", run.directory, "-t", "python", "-n", "1000").stdout
    assert "of waiting in" in shown and "--waits shows it" in shown
    names = {line.split("  ")[-1] for line in shown.partition("Lines of Python")[0].splitlines()}
    assert names & {row["name"] for row in rows} and not names & {row["name"] for row in rows if row["waits"]}
    assert " yes  " in torchprof("report", run.directory, "-t", "python", "--waits").stdout
