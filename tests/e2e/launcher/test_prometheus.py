"""What `torchprof metrics` and `run --metrics` write, and examples/metrics, as Prometheus itself reads it (Debian's package prometheus, with promtool)."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.parse
import urllib.request

import pytest

from conftest import PATIENCE, ROOT, SUPPORT
from prometheus_text import values
from watched_jobs import started, training, until

pytestmark = [pytest.mark.once, pytest.mark.skipif(not shutil.which("promtool"), reason="tests with Prometheus run where Debian's package prometheus is installed")]

EXAMPLES = ROOT / "examples" / "metrics"
RANKS = """
import os, time, torch, torch.distributed as dist
from torch.utils.data import DataLoader
dist.init_process_group("gloo")
net = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
steps, go_on = 0, torch.ones(1)
while go_on.item():
    for batch in DataLoader(torch.ones(20, 8), batch_size=4):
        net(batch).sum().backward()
        for p in net.parameters(): dist.all_reduce(p.grad)
        optimizer.step()
        steps += 1
    go_on.fill_(not os.path.exists("train no more"))
    dist.broadcast(go_on, 0)
if dist.get_rank() == 0: print(steps, flush=True)
while not os.path.exists("end"): time.sleep(0.01)
"""


def checked(*arguments, text=None):
    """What promtool says, which finds nothing wrong."""
    done = subprocess.run(["promtool", *map(str, arguments)], input=text, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def listening_port(pid):
    """The port of 127.0.0.1 on which a process listens; None: not yet."""
    inodes = set()
    for fd in pathlib.Path("/proc/%d/fd" % pid).iterdir():
        try:
            inodes.add(os.readlink(fd))
        except FileNotFoundError:
            pass
    for line in pathlib.Path("/proc/%d/net/tcp" % pid).read_text().splitlines()[1:]:
        _, local, _, state, *_, = line.split()
        if state == "0A" and "socket:[%s]" % line.split()[9] in inodes:
            return int(local.split(":")[1], 16)
    return None


class Prometheus:
    """Its HTTP API; `process` is Prometheus."""

    def __init__(self, process):
        self.process = process
        self.url = "http://127.0.0.1:%d/api/v1/" % until(lambda: listening_port(process.pid), job=process)

    def get(self, what, **parameters):
        def answer():
            try:
                with urllib.request.urlopen(self.url + what + "?" + urllib.parse.urlencode(parameters), timeout=PATIENCE) as found:
                    return json.load(found)
            except urllib.error.HTTPError as error:
                assert error.code == 503, (what, parameters, error.read())  # it is not ready yet
                return None
        found = until(answer, job=self.process)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression):
        """[(labels, number)]"""
        return [(each["metric"], float(each["value"][1])) for each in self.get("query", query=expression)["result"]]


def test_promtool_finds_nothing_wrong_with_what_is_written_or_sent(launcher, torch_python, torchprof, tmp_path):
    with training(launcher, torch_python, tmp_path, "--metrics", tmp_path / "of_run.prom"):
        texts = [until((tmp_path / "of_run.prom").read_text), torchprof("metrics", tmp_path / "run").stdout]
        assert torchprof("metrics", tmp_path / "run", "-o", tmp_path / "a.prom", "--once").returncode == 0
        texts.append((tmp_path / "a.prom").read_text())
        with started(launcher, "metrics", "run", "--listen", "0", cwd=tmp_path) as metrics:
            with urllib.request.urlopen(re.search("http://[^ ]*/metrics", metrics.stderr.readline())[0], timeout=PATIENCE) as answer:
                texts.append(answer.read().decode())
        for text in texts:
            assert checked("check", "metrics", text=text) == ""
    assert all(values(text, "torchprof_steps_total") for text in texts[1:])


def test_promtool_finds_nothing_wrong_with_the_examples():
    assert "SUCCESS: 7 rules found" in checked("check", "config", "--lint-fatal", EXAMPLES / "prometheus.yml")


def alerts_test(series, at, alert, labels):
    """A test of `promtool test rules`: whether exactly these labels are alerted at a time. Series have a value a minute."""
    return {"interval": "1m", "input_series": [{"series": name, "values": text} for name, text in series.items()],
            "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": labels}]}


def test_alerts_name_who_hangs_is_slow_or_waits_for_data(tmp_path):
    rank = 'run="/r",host="h",role="rank",rank="%d"'
    of = [{"run": "/r", "host": "h", "role": "rank", "rank": str(n)} for n in range(4)]
    slow = {}
    for n in range(4):
        slow["torchprof_steps_total{%s}" % rank % n] = "0+600x30"
        slow["torchprof_step_thread_cpu_seconds_total{%s}" % rank % n] = "0+%dx30" % (30 if n == 2 else 10)
    hang = {"torchprof_since_step_seconds{%s}" % rank % 1: "0+60x30", "torchprof_step_seconds_sum{%s}" % rank % 1: "100+0x30",
            "torchprof_step_seconds_count{%s}" % rank % 1: "50+0x30"}
    loading = {"torchprof_loading_ratio{%s}" % rank % n: "%sx30" % (0.6 if n == 3 else 0.2) for n in range(4)}

    def alerted(labels, severity, summary, description=None):
        return [{"exp_labels": {**labels, "severity": severity}, "exp_annotations": {"summary": summary, **({"description": description} if description else {})}}]
    tests = [
        alerts_test(slow, "20m", "TorchprofSlowRank", alerted(
            of[2], "warn", "rank 2 on h works half as much again as the middle of its job in each step",
            "torchprof ctl /r next=3, then torchprof report /r -t advice")),
        alerts_test(hang, "5m", "TorchprofStepHangs", alerted(
            of[1], "page", "no step of rank 1 on h has ended for 5m 0s", "torchprof where /r says what every thread is doing.")),
        alerts_test(hang, "1m", "TorchprofStepHangs", []),
        alerts_test(loading, "20m", "TorchprofWaitsForData", alerted(of[3], "warn", "rank 3 on h waits for data 60% of its time"))]
    (tmp_path / "tests.yml").write_text(json.dumps({"rule_files": [str(EXAMPLES / "alerts.yml")], "tests": tests}))
    assert "SUCCESS" in checked("test", "rules", tmp_path / "tests.yml")


def expressions_of(panels):
    return [target["expr"] for panel in panels for target in panel.get("targets", [])] + [e for panel in panels for e in expressions_of(panel.get("panels", []))]


def test_prometheus_has_what_the_examples_ask_for_and_the_steps_of_a_job_until_it_ends(launcher, torch_python, tmp_path):
    (tmp_path / "train.py").write_text(RANKS)
    shutil.copytree(EXAMPLES, tmp_path / "metrics")
    configuration = tmp_path / "metrics" / "prometheus.yml"
    with started(launcher, "run", "-q", "--format", "none", "-o", "run", torch_python, SUPPORT / "ranks.py", 2, "train.py", cwd=tmp_path) as job:
        until(lambda: list(tmp_path.glob("run/spool/*.spool")), job=job)
        with started(launcher, "metrics", "run", "--listen", "0", "--every", "200ms", cwd=tmp_path) as metrics:
            address = re.search("http://([^ /]*)/metrics", metrics.stderr.readline())[1]
            text = configuration.read_text()
            assert text.count("localhost:9401") == 1 and text.count("_interval: 15s") == 2
            # As long as the one that Kubernetes gives a service.
            text = text.replace("  - job_name: torchprof\n", "  - job_name: torchprof\n    authorization: {credentials: %s}\n" % ("x" * 1500))
            configuration.write_text(text.replace("localhost:9401", address).replace("_interval: 15s", "_interval: 1s"))
            with started("prometheus", "--config.file", configuration, "--storage.tsdb.path", tmp_path / "data", "--web.listen-address", "127.0.0.1:0",
                         "--log.level", "error", cwd=tmp_path) as process:
                prometheus = Prometheus(process)
                asked = expressions_of(json.loads((EXAMPLES / "dashboard.json").read_text())["panels"])
                rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
                asked += [rule["name"] for rule in rules if rule["type"] == "recording"]
                for expression in asked:
                    if "gpu" not in expression:  # there is none
                        expression = expression.replace("$run", ".*/run").replace("$__rate_interval", "1m")
                        until(lambda: prometheus.query(expression), job=metrics)
                (tmp_path / "train no more").touch()
                steps = int(job.stdout.readline())
                assert steps % 5 == 0
                until(lambda: {(of["rank"], count) for of, count in prometheus.query('torchprof_steps_total{role="rank"}')} == {("0", steps), ("1", steps)}, job=metrics)
                labels = {"run": str(tmp_path / "run"), "role": "rank", "job": "torchprof", "instance": address, "host": os.uname().nodename}
                for of, count in prometheus.query('torchprof_step_seconds_count{rank!=""}'):
                    assert of.items() >= labels.items() and steps - 2 <= count <= steps
                took = dict((of["le"], count) for of, count in prometheus.query('sum by (le) (torchprof_step_seconds_bucket)'))
                assert took["+Inf"] == sum(count for _, count in prometheus.query("torchprof_step_seconds_count"))
                assert prometheus.query('up{job="torchprof"}')[0][1] == 1
                assert {kind["type"] for kind in prometheus.get("metadata", metric="torchprof_step_seconds")["torchprof_step_seconds"]} == {"histogram"}
                assert all(rule["health"] == "ok" for group in prometheus.get("rules")["groups"] for rule in group["rules"])
                (tmp_path / "end").touch()
                assert metrics.wait(PATIENCE) == 0 and job.wait(PATIENCE) == 0
                until(lambda: not prometheus.query("torchprof_steps_total"), job=process)
