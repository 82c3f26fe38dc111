"""Each operator has the line of the program that made it, by default: programs of random functions within functions say which.

Each operator has a size of its own, so the sizes tell the operators apart, with all that they call, and their backward.
"""
import json
import random
import sqlite3
import sys

import pytest

HEAD = '''
import asyncio, contextlib, functools, operator, threading
import torch
import torch.nn.functional as F
t = [torch.ones(n, requires_grad=True) for n in range(MOST)]
linear = torch.nn.ModuleList([torch.nn.Linear(n + 1, 1) for n in range(MOST)])
def decorated(f):
    @functools.wraps(f)
    def wrapper(*args):
        return f(*args)
    return wrapper
'''


class Program:
    """A program's text, and the line of each operator in it."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = []
        self.expected = {}  # by size: "program.py(12): f"
        self.names = 0
        self.size = 1
        self.function = ["<module>"]

    def emit(self, depth, text):
        self.lines.append("    " * depth + text)
        return len(self.lines)

    def name(self, kind="f"):
        self.names += 1
        return f"{kind}{self.names}"

    def op(self, depth, form, function=None, file="program.py", line=None):
        """One more size; `form`: the text that uses t[SIZE], of one or more lines. `line`: of them, from 0, or of the other `file`."""
        self.size += 1
        first = len(self.lines) + 1
        for part in form.replace("SIZE", str(self.size)).split("\n"):
            self.emit(depth, part)
        at = line if file != "program.py" else first + (line or 0)
        self.expected[self.size] = f"{file}({at}): {function or self.function[-1]}"

    # ---- statements that make one operator ----------------------------------------------------------------------------

    def direct(self, depth):
        self.op(depth, self.random.choice(["t[SIZE].relu()", "torch.relu(t[SIZE])", "t[SIZE] + 1", "F.relu(t[SIZE])", "F.softmax(t[SIZE], 0)",
                                           "F.dropout(t[SIZE], 0.5, True)", "functools.partial(torch.relu, t[SIZE])()", "list(map(torch.relu, [t[SIZE]]))",
                                           "operator.methodcaller('relu')(t[SIZE])", "sum([t[SIZE]])"]))

    def several_lines(self, depth):
        self.op(depth, "F.softmax(\n    t[SIZE],\n    dim=\n    0,\n)")
        self.op(depth, "x = [1,\n     torch.relu(t[SIZE]),\n     3]", line=1)

    def backward(self, depth):
        self.op(depth, "\ny = t[SIZE].exp()", line=1)
        self.emit(depth, "")
        self.op(depth, "torch.ones(SIZE, requires_grad=True).mul(2).sum().backward()")

    def recursion(self, depth):
        name = self.name()
        self.emit(depth, f"def {name}(n):")
        self.function.append(name)
        self.emit(depth + 1, f"if n: {name}(n - 1)")
        self.op(depth + 1, "t[SIZE].relu()")
        self.op(depth + 1, "F.relu(t[SIZE])")
        self.function.pop()
        self.emit(depth, f"{name}(2)")

    def comprehension(self, depth):
        # A frame of its own up to 3.11.
        form, inner = self.random.choice([("[v.relu() for v in (t[SIZE],)]", "<listcomp>"), ("{1: v.relu() for v in (t[SIZE],)}", "<dictcomp>")])
        self.op(depth, form, function=inner if sys_version < (3, 12) else None)

    def generator_expression(self, depth):
        self.op(depth, "list(v.relu()\n     for v in (t[SIZE],))", function="<genexpr>")

    def function_of_one_line(self, depth):
        self.op(depth, "(lambda v:\n     v.relu())(t[SIZE])", function="<lambda>", line=1)
        self.op(depth, "sorted([2, 1], key=\n       lambda v: t[SIZE].relu().sum().item() + v)", function="<lambda>", line=1)

    def executed(self, depth):
        line = self.random.randrange(1, 9)
        text = "\\n" * (line - 1) + "F.relu(t[SIZE])"
        self.op(depth, f"exec(compile('{text}', 'made{line}.py', 'exec'), globals())", function="<module>", file=f"made{line}.py", line=line)

    def thread(self, depth):
        name = self.name()
        self.emit(depth, f"def {name}():")
        self.function.append(name)
        self.op(depth + 1, "F.relu(t[SIZE])")
        self.function.pop()
        self.emit(depth, f"thread = threading.Thread(target={name}); thread.start(); thread.join()")

    # ---- what has statements inside -----------------------------------------------------------------------------------

    def body(self, depth, function, statements=None):
        if function:
            self.function.append(function)
        for _ in range(statements or self.random.randrange(1, 4)):
            simple = [self.direct, self.direct, self.several_lines, self.backward, self.recursion, self.comprehension, self.generator_expression,
                      self.function_of_one_line, self.executed, self.thread]
            deep = [self.plain, self.decorated, self.class_, self.module, self.generator, self.context, self.handler, self.block, self.coroutine]
            self.random.choice(simple if depth > 5 else simple + deep * 2)(depth)
        self.op(depth, "t[SIZE].tanh()")
        if function:
            self.function.pop()

    def plain(self, depth):
        name = self.name()
        self.emit(depth, f"def {name}():")
        self.body(depth + 1, name)
        self.emit(depth, f"{name}()")

    def decorated(self, depth):
        name = self.name()
        self.emit(depth, self.random.choice(["@decorated", "@functools.lru_cache(None)", "@torch.enable_grad()"]))
        self.emit(depth, f"def {name}():")
        self.body(depth + 1, name)
        self.emit(depth, f"{name}()")

    def class_(self, depth):
        name = self.name("C")
        self.emit(depth, f"class {name}:")
        for method in "__init__", "__call__", "value":
            if method == "value":
                self.emit(depth + 1, "@property")
            self.emit(depth + 1, f"def {method}(self):")
            self.body(depth + 2, method, 1)
        self.emit(depth, f"for _ in range({9 if depth < 2 else 1}):")  # so that the interpreter comes to know the call
        self.emit(depth + 1, f"made = {name}()")
        self.op(depth + 1, "t[SIZE].relu()")
        self.emit(depth, "made()")
        self.emit(depth, "made.value")

    def module(self, depth):
        name = self.name("M")
        self.emit(depth, f"class {name}(torch.nn.Module):")
        self.emit(depth + 1, "def forward(self, v):")
        self.function.append("forward")
        self.op(depth + 2, "v = v.sum() * t[SIZE]")
        self.body(depth + 2, None, 1)
        self.op(depth + 2, "linear[SIZE - 1](t[SIZE])")
        self.emit(depth + 2, "return v")
        self.function.pop()
        self.emit(depth, f"torch.nn.Sequential({name}(), {name}())(t[0])")

    def generator(self, depth):
        name = self.name()
        self.emit(depth, f"def {name}():")
        self.function.append(name)
        self.op(depth + 1, "yield t[SIZE].relu()")
        self.body(depth + 1, None, 1)
        self.op(depth + 1, "yield F.relu(t[SIZE])")
        self.function.pop()
        self.emit(depth, f"for _ in {name}():")
        self.op(depth + 1, "t[SIZE].relu()")

    def context(self, depth):
        name = self.name()
        self.emit(depth, "@contextlib.contextmanager")
        self.emit(depth, f"def {name}():")
        self.function.append(name)
        self.op(depth + 1, "t[SIZE].relu()")
        self.emit(depth + 1, "yield")
        self.op(depth + 1, "F.relu(t[SIZE])")
        self.function.pop()
        self.emit(depth, f"with {name}(), torch.enable_grad():")
        self.body(depth + 1, None, 1)

    def handler(self, depth):
        self.emit(depth, "try:")
        self.body(depth + 1, None, 1)
        self.emit(depth + 1, "raise ValueError")
        self.emit(depth, "except ValueError as error:")
        self.op(depth + 1, "F.relu(t[SIZE])")
        self.emit(depth, "finally:")
        self.body(depth + 1, None, 1)

    def block(self, depth):
        self.emit(depth, self.random.choice(["for _ in range(3):", "if t:", "with contextlib.suppress(ValueError):"]))
        self.body(depth + 1, None, 2)

    def coroutine(self, depth):
        name = self.name()
        self.emit(depth, f"async def {name}():")
        self.function.append(name)
        self.op(depth + 1, "t[SIZE].relu()")
        self.emit(depth + 1, "await asyncio.sleep(0)")
        self.op(depth + 1, "F.relu(t[SIZE])")
        self.function.pop()
        self.emit(depth, f"asyncio.run({name}())")

    def text(self):
        for line in HEAD.strip().split("\n"):
            self.emit(0, line)
        self.body(0, None, 12)
        # All kinds in each program, whatever the dice say.
        for kind in (self.direct, self.several_lines, self.backward, self.recursion, self.comprehension, self.generator_expression, self.executed,
                     self.function_of_one_line, self.thread, self.plain, self.decorated, self.class_, self.module, self.generator, self.context,
                     self.handler, self.block):
            self.emit(0, "def last():")
            self.function.append("last")
            kind(1)
            self.function.pop()
            self.emit(0, "last()")
        return "\n".join(self.lines).replace("MOST", str(self.size + 1)) + "\n"


sys_version = sys.version_info[:2]


def lines_by_size(file):
    """{size: {line: how many operators}}, of those that have an input of one dimension, or [1, SIZE], as a product has."""
    found = {}
    with sqlite3.connect(file) as database:
        query = ("SELECT i.text, l.text, o.text FROM ops JOIN strings i ON i.id = ops.inputs JOIN strings o ON o.id = ops.name "
                 "LEFT JOIN strings l ON l.id = ops.line WHERE ops.kind IN ('op', 'backward')")
        for inputs, line, name in database.execute(query):
            sizes = {dims[-1] for dims in json.loads(inputs).get("Input Dims", []) if isinstance(dims, list) and dims and dims[-1] not in (0, 1)}
            if len(sizes) == 1:
                found.setdefault(sizes.pop(), {}).setdefault(line, []).append(name)
    return found


@pytest.mark.parametrize("seed, options", [(1, []), (2, ["--python", "calls"])], ids=["default", "calls"])
def test_each_operator_has_the_line_that_made_it(torch_python, run_torchprof, torchprof, tmp_path, seed, options):
    program = Program(seed)
    (tmp_path / "program.py").write_text(program.text())
    run = run_torchprof([torch_python, "program.py"], options=["-q", "-w", "all", "--format", "none", *options], cwd=tmp_path)
    assert run.status == 0, run.stderr
    done = torchprof("export", run.directory, "--format", "sqlite", "-o", tmp_path / "lines.sqlite")
    assert done.returncode == 0, done.stderr
    found = lines_by_size(tmp_path / "lines.sqlite")
    of_head = {f"program.py({line}): {function}" for line in (4, 5) for function in ("<module>", "<listcomp>")}  # which makes all tensors
    wrong = {}
    for size, line in program.expected.items():
        lines = {at: names for at, names in found.get(size, {}).items() if at not in of_head}
        if set(lines) != {line}:
            wrong[line] = lines
    assert not wrong, program.text()
    done = torchprof("report", run.directory, "--json", "-t", "python")
    tables = {table["name"]: table["rows"] for table in json.loads(done.stdout)["tables"]}
    rows = {row["name"]: row for row in tables["python_lines"]}
    assert set(program.expected.values()) <= set(rows)
    assert all(0 < row["self_ns"] <= row["total_ns"] for name, row in rows.items() if name in program.expected.values())
