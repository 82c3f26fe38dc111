"""usage: long_job.py STEPS [BATCH]: trains the transformer of examples/ for STEPS steps in which some things are planted.

    a slow phase      20 steps from STEPS/2 on take four times as long: their batch comes late (slow_batch)
    a leak            10,000 bytes a step are kept
    longer batches    each 1,000 steps: three times as many lines
    evaluations       each 2,000 steps, from the 1,008th on (evaluate), where no typical window is

With WORLD_SIZE in the environment it is one rank of a job with gloo, whose rank SLOW_RANK (default: the last) loads its batch from a slow disk (slow_disk):
for twice as long as its step takes, however busy the machine is.
The last line has the seconds of the training, the seconds of its processor, and the median of a step in microseconds.
"""
import os
import pathlib
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import transformer  # noqa: E402

STEPS, BATCH = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 16
RANK, RANKS = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
IS_SLOW_RANK = RANKS > 1 and RANK == int(os.environ.get("SLOW_RANK", RANKS - 1))


def starts(text, lines):
    return torch.randint(len(text) - transformer.CONTEXT - 1, (lines,)).tolist()


def evaluate(model, text):
    model.eval()
    with torch.no_grad():
        for _ in range(300):
            model(torch.stack([text[start:start + transformer.CONTEXT] for start in starts(text, BATCH)]))
    model.train()


def slow_batch(seconds):
    time.sleep(seconds)


def slow_disk(seconds):
    time.sleep(seconds)


def average_gradients(model):
    gradients = [parameter.grad for parameter in model.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    torch.distributed.all_reduce(flat)
    for gradient, part in zip(gradients, flat.split([gradient.numel() for gradient in gradients])):
        gradient.copy_(part.view_as(gradient) / RANKS)


def train_step(model, optimizer, text, lines):
    batch = torch.stack([text[start:start + transformer.CONTEXT + 1] for start in starts(text, lines)])
    guess = model(batch[:, :-1])
    loss = torch.nn.functional.cross_entropy(guess.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    if RANKS > 1:
        average_gradients(model)
    optimizer.step()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if RANKS > 1:
        torch.distributed.init_process_group("gloo", init_method="env://")
    letters = sorted(set(transformer.make_text()))
    text = torch.tensor([letters.index(letter) for letter in transformer.make_text()])
    model = transformer.LanguageModel(len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    kept, times, trained, began, cpu = [], [], [0.01], time.perf_counter(), time.process_time()
    for step in range(STEPS):
        step_began = time.perf_counter()
        if STEPS // 2 <= step < STEPS // 2 + 20:
            slow_batch(3 * statistics.median(times[-50:]))
        lines = BATCH * 3 if step % 1000 == 999 else BATCH
        if IS_SLOW_RANK:
            slow_disk(2 * statistics.median(trained[-50:]))
        train_began = time.perf_counter()
        train_step(model, optimizer, text, lines)
        trained.append(time.perf_counter() - train_began)
        kept.append(bytes(10_000))
        times.append(time.perf_counter() - step_began)
        if step % 2000 == 1007:
            evaluate(model, text)
    print("%.2f %.2f %.0f" % (time.perf_counter() - began, time.process_time() - cpu, 1e6 * statistics.median(times)))


if __name__ == "__main__":
    main()
