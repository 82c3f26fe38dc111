"""A small transformer language model learns to count in words. The text is made here; nothing is downloaded.

    torchprof run python3 examples/transformer.py

What to expect in the trace, for every one of the 20 steps:
    user_annotation   train_step, in it forward, backward, Optimizer.zero_grad#AdamW..., Optimizer.step#AdamW.step
    python_function   nn.Module: LanguageModel_0, in it Block_0 and Block_1, in each Attention_N, LayerNorm_N and Linear_N
    cpu_op            aten::bmm, aten::_softmax and their backward operators, joined by fwdbwd flows
"""
import argparse
import math
import os
import sys

import torch
from torch import nn

CONTEXT = 32
WIDTH = 64
WORDS = "zero one two three four five six seven eight nine".split()


def make_text(numbers=600):
    """'one two three, one zero zero, ...': each number's digits as words, so that the next letter can be learnt."""
    return ", ".join(" ".join(WORDS[int(digit)] for digit in str(number)) for number in range(numbers))


class Attention(nn.Module):
    """Causal, one head."""

    def __init__(self):
        super().__init__()
        self.project_in = nn.Linear(WIDTH, 3 * WIDTH)
        self.project_out = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("future", torch.ones(CONTEXT, CONTEXT).triu(1).bool())

    def forward(self, x):
        query, key, value = self.project_in(x).chunk(3, dim=-1)
        scores = torch.bmm(query, key.transpose(1, 2)) / math.sqrt(WIDTH)
        weights = torch.softmax(scores.masked_fill(self.future, float("-inf")), dim=-1)
        return self.project_out(torch.bmm(weights, value))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.before_mlp = nn.LayerNorm(WIDTH)
        self.mlp_in = nn.Linear(WIDTH, 4 * WIDTH)
        self.mlp_out = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp_out(torch.relu(self.mlp_in(self.before_mlp(x))))


class LanguageModel(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.letter = nn.Embedding(letters, WIDTH)
        self.place = nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.next_letter = nn.Linear(WIDTH, letters)

    def forward(self, text):
        x = self.letter(text) + self.place
        for block in self.blocks:
            x = block(x)
        return self.next_letter(x)


def train_step(model, optimizer, text, starts):
    record = torch.autograd.profiler.record_function
    with record("train_step"):
        batch = torch.stack([text[start:start + CONTEXT + 1] for start in starts])
        with record("forward"):
            guess = model(batch[:, :-1])
            loss = nn.functional.cross_entropy(guess.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        with record("backward"):
            loss.backward()
        optimizer.step()
        return loss.item()


def log_step(step, loss):
    """One line a step, on stdout and, if EXAMPLE_LOG names a file, safely on the disk."""
    print("step %2d  loss %.4f" % (step, loss), flush=True)
    if "EXAMPLE_LOG" in os.environ:
        with open(os.environ["EXAMPLE_LOG"], "a") as log:
            log.write("%d\n" % step)
            log.flush()
            os.fsync(log.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()

    torch.manual_seed(0)
    letters = sorted(set(make_text()))
    text = torch.tensor([letters.index(letter) for letter in make_text()])
    model = LanguageModel(len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(args.steps):
        starts = torch.randint(len(text) - CONTEXT - 1, (16,)).tolist()
        losses.append(train_step(model, optimizer, text, starts))
        log_step(step, losses[-1])
    print("trained %d steps: loss %.4f -> %.4f" % (len(losses), losses[0], losses[-1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
