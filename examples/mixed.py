"""What training loops seldom do all at once: threads, generators, exceptions, recursion, nested annotations, odd backward passes.

    torchprof run python3 examples/mixed.py

Every part has unmistakable names, so that each call can be counted in the trace. How often each Python function is entered or resumed:

    thread_worker       3   threads of `threading`
    raw_thread_worker   2   threads of `_thread`, which Python itself does not list
    thread_leaf        40   10 in each thread_worker, 5 in each raw_thread_worker
    count_up           15   a generator: 6 times to drain it, 3 to close it, 3 to throw into it, 3 through delegate
    delegate            3   `yield from count_up`, resumed with it
    drop_me             2   a generator that is dropped at its first yield; Python then closes it
    raise_deep          6   each calls the next, the last raises through all of them
    recurse           150   each calls the next
    square_forward      1   a custom autograd.Function
    square_backward     1
    nested_forward     71   a custom autograd.Function whose backward runs another backward
    nested_backward    71   past a depth of 60 torch goes on in a thread of its own

Annotations: `mixed outer`, `mixed middle` and `mixed inner` twice each, one in the other; `mixed raised` once, left by an exception;
`mixed thread` three times, once in each thread_worker, around one aten::add_.
"""
import _thread
import sys
import threading

import torch
from torch.autograd.profiler import record_function


def thread_leaf(n):
    return n + 1


def thread_worker(total):
    with record_function("mixed thread"):
        total.add_(1)
    for n in range(10):
        thread_leaf(n)


def raw_thread_worker(done):
    for n in range(5):
        thread_leaf(n)
    done.release()


def use_threads():
    total = torch.zeros(3)
    threads = [threading.Thread(target=thread_worker, args=(total,), name="mixed-%d" % n) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(2):
        done = _thread.allocate_lock()
        done.acquire()
        _thread.start_new_thread(raw_thread_worker, (done,))
        done.acquire()


def count_up(stop):
    try:
        for n in range(stop):
            yield n
    except GeneratorExit:  # without a handler Python 3.13 closes a generator without running it
        return


def delegate():
    yield from count_up(2)


def drop_me():
    try:
        yield 1
    except GeneratorExit:
        return


def use_generators():
    list(count_up(5))
    closed = count_up(5)
    next(closed), next(closed)
    closed.close()
    thrown = count_up(5)
    next(thrown), next(thrown)
    try:
        thrown.throw(KeyError("thrown into a generator"))
    except KeyError:
        pass
    list(delegate())
    dropped = drop_me()
    next(dropped)
    del dropped


def raise_deep(depth):
    if depth == 0:
        raise ValueError("raised through six frames")
    raise_deep(depth - 1)


def use_exceptions():
    try:
        raise_deep(5)
    except ValueError:
        pass
    try:
        with record_function("mixed raised"):
            raise ValueError("raised through an annotation")
    except ValueError:
        pass


def recurse(depth):
    return 0 if depth == 1 else 1 + recurse(depth - 1)


def use_annotations():
    for _ in range(2):
        with record_function("mixed outer"):
            with record_function("mixed middle"):
                with record_function("mixed inner"):
                    torch.ones(2, 2).mul(3)


def square_forward(ctx, x):
    ctx.save_for_backward(x)
    return x * x


def square_backward(ctx, gradient):
    x, = ctx.saved_tensors
    return 2 * x * gradient


class Square(torch.autograd.Function):
    forward = staticmethod(square_forward)
    backward = staticmethod(square_backward)


def nested_forward(ctx, x, depth):
    ctx.depth = depth
    return x.clone()


def nested_backward(ctx, gradient):
    if ctx.depth:
        with torch.enable_grad():
            x = torch.ones(3, requires_grad=True)
            Nested.apply(x, ctx.depth - 1).sum().backward()
    return gradient, None


class Nested(torch.autograd.Function):
    forward = staticmethod(nested_forward)
    backward = staticmethod(nested_backward)


def use_autograd():
    weight = torch.ones(3, 3, requires_grad=True)
    Square.apply(weight.matmul(torch.ones(3, 3)).tanh()).sum().backward()
    Nested.apply(torch.ones(3, requires_grad=True), 70).sum().backward()


def main():
    torch.manual_seed(0)
    for part in (use_threads, use_generators, use_exceptions, use_annotations, use_autograd):
        part()
    print("recursed %d deep" % (1 + recurse(150)))
    print("mixed: all parts done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
