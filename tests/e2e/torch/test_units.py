"""What recurs in programs without optimizers is their step: requests, calls of a model, tokens; `--step` chooses another. Of a short script nothing is."""
import json
import re
import textwrap

import pytest

HEAD = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)).eval()
for p in model.parameters(): p.requires_grad_(False)
"""
SERVER = """
import http.server, threading, time, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        x = torch.full((2048, 64), float(self.rfile.read(int(self.headers["Content-Length"]))))
        body = b"%.3f" % model(x).sum().item()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
def clients():
    for _ in range(30):
        time.sleep(0.01)
        urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/", data=b"0.5").read()
    server.shutdown()
threading.Thread(target=clients).start()
server.serve_forever()
"""
INFERENCE = """
def prepare(i): return torch.full((4096, 64), float(i))
labels = []
for i in range(24):
    batch = prepare(i)
    labels.append(model(batch).argmax(1))
"""
EVENT_LOOP = """
import asyncio
async def handle(reader, writer):
    while line := await reader.readline():
        y = model(torch.full((4096, 64), float(len(line)))).sum().item()
        writer.write(b"%.3f\\n" % y)
        await writer.drain()
    writer.close()
async def client(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(15):
        writer.write(b"score this\\n")
        await reader.readline()
    writer.close()
async def main():
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    await asyncio.gather(*[client(server.sockets[0].getsockname()[1]) for _ in range(2)])
asyncio.run(main())
"""
GENERATION = """
class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.body, self.head = torch.nn.Embedding(50, 64), model, torch.nn.Linear(64, 50)
    def forward(self, ids):
        return self.head(self.body(self.emb(ids))[:, -1])
@torch.no_grad()
def generate(gpt, ids, n):
    for _ in range(n):
        ids = torch.cat([ids, gpt(ids).argmax(-1, keepdim=True)], 1)
    return ids
generate(GPT(), torch.zeros(128, 16, dtype=torch.long), 40)
"""
SHORT = """
x = torch.ones(64, 64)
for name in ("first", "second"):
    print(name, model(x).sum().item())
"""


@pytest.fixture
def recorded(run_torchprof, program, torch_python, torchprof):
    """recorded(TEXT, OPTION...) runs a program: its steps and the title of its advice, as (row or None, title), and a function that asks again."""
    def run(text, *options):
        run = run_torchprof([torch_python, program(HEAD + textwrap.dedent(text))], options=["--format", "none", *options])
        assert run.status == 0, run.stderr

        def asked(*options):
            done = torchprof("report", run.directory, "-t", "advice,steps", "--json", *options)
            assert done.returncode == 0, done.stderr
            tables = {t["name"]: t for t in json.loads(done.stdout)["tables"]}
            rows = tables["steps"]["rows"] if "steps" in tables else []
            assert len(rows) < 2
            return (rows[0] if rows else None), tables["advice"]["title"]
        return run, asked
    return run


@pytest.mark.parametrize("text, count, unit", [
    (SERVER, 30, r"a request of (Handler\.)?do_POST \(program\.py\)"),
    (INFERENCE, 24, r"a call of Sequential|a pass of the loop in program\.py"),
    (EVENT_LOOP, 30, r"a request of handle \(program\.py\)"),
    (GENERATION, 40, r"a call of GPT|a pass of the loop in generate \(program\.py\)"),
], ids=["server", "inference", "event loop", "generation"])
def test_what_recurs_is_the_step(recorded, text, count, unit):
    _, asked = recorded(text)
    steps, title = asked()
    assert re.fullmatch(unit, steps["ends_with"]), steps
    # Of a coroutine each stretch that runs is one; where an answer could not be sent at once there are two.
    assert count <= steps["steps"] <= count + (4 if text is EVENT_LOOP else 0)
    assert title.startswith("Advice: " + steps["ends_with"] + " takes ")


def test_a_short_script_has_no_unit_and_its_imports_are_no_part_of_it(recorded):
    run, asked = recorded(SHORT)
    steps, title = asked()
    assert steps is None and title.startswith("Advice: the run takes ")
    amount, unit = title.split(" takes ")[1].split()
    info = json.loads((run.directory / "run.json").read_text())
    # Importing torch takes most of it.
    assert float(amount) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit] < info["seconds"] / 2


def test_a_step_can_be_chosen_when_the_run_is_made_and_later(recorded, torchprof):
    run, asked = recorded(INFERENCE, "--step", "prepare")
    assert asked()[0]["ends_with"] == "a call of prepare (program.py)" and asked()[0]["steps"] == 24
    assert asked("--step", "Sequential")[0]["ends_with"] == "a call of Sequential"
    done = torchprof("report", run.directory, "--step", "prepar")
    assert done.returncode == 125 and done.stdout == ""
    assert done.stderr == "torchprof: --step: no function, module or range 'prepar' was called (did you mean 'prepare'?)\n"
