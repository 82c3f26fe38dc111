"""`torchprof metrics` and `run --metrics`: numbers for Prometheus while a job runs, as a file and over HTTP, and nothing once it has ended."""
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import pytest

from conftest import PATIENCE, SUPPORT, clean_environment
from prometheus_text import samples, values
from watched_jobs import started, training, until

pytestmark = pytest.mark.once


def one(text, name):
    found = values(text, name)
    assert len(found) == 1, (name, text)
    return next(iter(found.values()))


@pytest.fixture(scope="module")
def looked_at(launcher, torch_python, tmp_path_factory):
    """Two looks at a job, printed, and its run directory."""
    directory = tmp_path_factory.mktemp("metrics")
    with training(launcher, torch_python, directory) as job:
        texts = []
        for _ in range(2):
            done = subprocess.run([launcher, "metrics", "run"], capture_output=True, text=True, cwd=directory, env=clean_environment())
            assert done.returncode == 0 and done.stderr == "", done.stderr
            texts.append(done.stdout)
        (directory / "end").touch()
        assert job.wait(PATIENCE) == 0
    return texts, directory / "run"


def test_steps_are_counted_since_the_begin(looked_at):
    (first, second), run = looked_at
    for text in first, second:
        steps = values(text, "torchprof_steps_total")
        assert len(steps) == 1 and min(steps.values()) >= 50
        labels, = steps
        assert dict(labels).items() >= {"run": str(run), "role": "other", "host": socket.gethostname()}.items()
        counted, took = one(text, "torchprof_step_seconds_count"), one(text, "torchprof_step_seconds_sum")
        # The first step has no time: nobody knows when it began.
        assert steps[labels] - 2 <= counted <= steps[labels]
        assert took >= 0.004 * counted
        below = {dict(labels)["le"]: count for labels, count in values(text, "torchprof_step_seconds_bucket").items()}
        assert below["0.003"] == 0 and below["+Inf"] == counted  # each sleeps 4 ms
    assert one(second, "torchprof_steps_total") > one(first, "torchprof_steps_total")
    assert one(second, "torchprof_process_cpu_seconds_total") >= one(first, "torchprof_process_cpu_seconds_total") > 0


def test_parts_memory_and_our_own_cost_are_there(looked_at):
    (_, text), _ = looked_at
    assert 0 < one(text, "torchprof_loading_ratio") < 1
    assert one(text, "torchprof_resident_bytes") > 30e6 and one(text, "torchprof_spool_bytes") > 0
    assert 0 <= one(text, "torchprof_since_step_seconds") < PATIENCE
    assert one(text, "torchprof_lost_events_total") == one(text, "torchprof_capture_stopped") == 0
    assert one(text, "torchprof_metrics_cpu_seconds_total") > 0
    assert values(text, "torchprof_allocated_bytes")
    assert one(text, "torchprof_window_open") in (0, 1) and one(text, "torchprof_processes") == 1


def test_what_is_not_known_has_no_line(looked_at):
    (_, text), _ = looked_at
    assert "torchprof_gpu" not in text and "torchprof_collectives" not in text and "rank=" not in text


def test_a_run_that_has_ended_has_no_numbers(looked_at, torchprof, tmp_path):
    for more in ([], ["-o", tmp_path / "a.prom", "--once"]):
        done = torchprof("metrics", looked_at[1], *more)
        assert done.returncode == 125 and "the run has ended: `torchprof report`" in done.stderr and done.stdout == ""
    assert torchprof("metrics", looked_at[1], "-o", tmp_path / "a.prom").returncode == 0
    assert not (tmp_path / "a.prom").exists()


RANKS = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
net = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
go_on = torch.ones(1)
while go_on.item():
    net(torch.ones(4, 8)).sum().backward()
    for p in net.parameters(): dist.all_reduce(p.grad)
    optimizer.step()
    go_on.fill_(not os.path.exists("end"))
    dist.broadcast(go_on, 0)
dist.destroy_process_group()
"""


def test_ranks_are_told_apart_in_a_file_that_is_there_while_they_run(launcher, torch_python, tmp_path):
    (tmp_path / "train.py").write_text(RANKS)
    file = tmp_path / "a \"quoted\"\\.prom"
    with started(launcher, "run", "-q", "--format", "none", "-o", "run", torch_python, SUPPORT / "ranks.py", 2, "train.py", cwd=tmp_path) as job:
        until(lambda: list(tmp_path.glob("run/spool/*.spool")), job=job)
        with started(launcher, "metrics", "run", "-o", file, "--every", "100ms", cwd=tmp_path) as metrics:
            seen = set()

            def ranks():
                if not file.exists():
                    return set()
                text = file.read_text()
                seen.add(text)
                labels = [dict(labels) for labels in values(text, "torchprof_steps_total")]
                return {one["rank"] for one in labels if one["role"] == "rank"} == {"0", "1"} and values(text, "torchprof_collectives_ratio")
            until(ranks, job=metrics)
            before = one_of_rank(file.read_text(), "0")
            until(lambda: one_of_rank(file.read_text(), "0") > before, job=metrics)
            assert not [path for path in tmp_path.glob("*.prom") if path != file]
            (tmp_path / "end").touch()
            assert metrics.wait(PATIENCE) == 0 and not file.exists()
        assert job.wait(PATIENCE) == 0
    for text in seen:
        samples(text)


def one_of_rank(text, rank):
    return next(number for labels, number in values(text, "torchprof_steps_total").items() if dict(labels).get("rank") == rank)


def get(url, path="/metrics", method="GET"):
    with urllib.request.urlopen(urllib.request.Request(url.replace("/metrics", path), method=method), timeout=PATIENCE) as answer:
        return answer.headers, answer.read().decode()


def test_it_answers_over_http(launcher, torch_python, tmp_path):
    with training(launcher, torch_python, tmp_path) as job, started(launcher, "metrics", tmp_path / "run", "--listen", "0", "--every", "100ms", cwd=tmp_path) as metrics:
        url = re.fullmatch(r"torchprof: (http://127\.0\.0\.1:\d+/metrics): numbers of .*/run\n", metrics.stderr.readline())[1]
        address = "127.0.0.1", int(url.split(":")[2].split("/")[0])
        headers, text = until(lambda: found if (found := get(url))[1] else None)
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8" and one(text, "torchprof_steps_total") >= 50
        until(lambda: one(get(url)[1], "torchprof_steps_total") > one(text, "torchprof_steps_total"))
        assert get(url, method="HEAD")[1] == ""
        for path, method, status in (("/", "GET", 404), ("/metrics/../secret", "GET", 404), ("/metrics", "POST", 405)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(url, path, method)
            assert refused.value.code == status
        # Those that say nothing, say too much or leave do not keep others from an answer.
        silent = [socket.create_connection(address) for _ in range(3)]
        for request, status in ((b"GET /metrics HTTP/1.1\r\n" + b"A: " + b"x" * 10000 + b"\r\n\r\n", b" 431 "), (b"\r\n\r\n", b" 400 "), (b"\0\xff\r\n\r\n", b" 400 "),
                                (b"GET /metrics HTTP/2\r\n\r\n", b" 400 ")):
            with socket.create_connection(address, timeout=PATIENCE) as odd:
                odd.sendall(request)
                with contextlib.suppress(ConnectionResetError):
                    answer = odd.recv(100)
                    assert status in answer.split(b"\r\n")[0], answer
        with socket.create_connection(address) as rude:
            rude.sendall(b"GET /met")
        assert one(get(url)[1], "torchprof_steps_total") >= 50
        for each in silent:
            each.close()
        (tmp_path / "end").touch()
        assert metrics.wait(PATIENCE) == 0 and job.wait(PATIENCE) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_it_removes_the_file(launcher, torch_python, tmp_path, number):
    with training(launcher, torch_python, tmp_path) as job:
        with started(launcher, "metrics", "run", "-o", "a.prom", cwd=tmp_path) as metrics:
            until((tmp_path / "a.prom").exists, job=metrics)
            os.kill(metrics.pid, number)
            assert metrics.wait(PATIENCE) == 0
        assert not list(tmp_path.glob("a.prom*")) and job.poll() is None


def test_a_file_that_somebody_else_put_there_stays(launcher, torch_python, tmp_path):
    with training(launcher, torch_python, tmp_path):
        with started(launcher, "metrics", "run", "-o", "a.prom", "--every", "60m", cwd=tmp_path) as metrics:
            until((tmp_path / "a.prom").exists, job=metrics)
            (tmp_path / "other").write_text("theirs")
            (tmp_path / "other").rename(tmp_path / "a.prom")
            os.kill(metrics.pid, signal.SIGTERM)
            assert metrics.wait(PATIENCE) == 0 and (tmp_path / "a.prom").read_text() == "theirs"


def test_run_writes_them_while_the_program_runs(launcher, torch_python, tmp_path):
    with training(launcher, torch_python, tmp_path, "--metrics", "a.prom") as job:
        text = until(lambda: text if values(text := (tmp_path / "a.prom").read_text(), "torchprof_steps_total") else None, job=job)
        assert one(text, "torchprof_steps_total") >= 1
        (tmp_path / "end").touch()
        assert job.wait(PATIENCE) == 0
        assert not list(tmp_path.glob("a.prom*")), job.stderr.read()


@pytest.mark.parametrize("whom", ["program", "launcher"])
def test_no_file_is_left_of_a_killed(launcher, torch_python, tmp_path, whom):
    with training(launcher, torch_python, tmp_path, "--metrics", "a.prom") as job:
        assert (tmp_path / "a.prom").exists()
        pid = job.pid if whom == "launcher" else int(re.search(r"\.(\d+)\.\d+\.spool", next(tmp_path.glob("run/spool/*.spool")).name)[1])
        os.kill(pid, signal.SIGKILL)
        assert job.wait(PATIENCE) == -signal.SIGKILL
        until(lambda: not list(tmp_path.glob("a.prom*")))


def test_a_file_that_cannot_be_written_is_said_before_the_program_starts(torchprof, torch_python, tmp_path):
    done = torchprof("run", "--metrics", tmp_path / "missing" / "a.prom", torch_python, "-c", "print('ran')")
    assert done.returncode == 125 and "missing/a.prom" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("arguments, says", [
    (["--every", "1ms"], "metrics: --every: '1ms' is not a time of 100ms or more, with ms, s or m"),
    (["--listen", "0", "--once"], "metrics: --once answers nobody: leave out --listen; see `torchprof help metrics`"),
    (["--listen", "here:80"], "metrics: --listen here:80: is no address of this machine with a port: 127.0.0.1:9401, [::1]:9401"),
    (["--listen", "127.0.0.1:99999"], "metrics: --listen 127.0.0.1:99999: is no address of this machine with a port: 127.0.0.1:9401, [::1]:9401")])
def test_what_it_does_not_take(launcher, torch_python, torchprof, tmp_path, arguments, says):
    pathlib.Path(tmp_path / "spool").mkdir()
    done = torchprof("metrics", tmp_path, *arguments)
    assert done.returncode == 125 and done.stderr == "torchprof: %s\n" % says
