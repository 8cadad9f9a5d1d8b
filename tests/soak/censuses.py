"""Soak: thousands of censuses beside everything that a training process does. usage: censuses.py [CENSUSES]

Threads that run forward and backward passes, DataLoader workers with their threads, hooks that come and go, custom
Functions, exceptions, generators, the collector on and off and frozen. Prints progress; ends with 0 when it survived.
"""
import gc
import os
import random
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

from lowtide import _census, _walk


class Numbers(Dataset):
    def __len__(self):
        return 100_000_000

    def __getitem__(self, index):
        return torch.randn(32), index % 4


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


def train(stop, seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters())
    kept = []
    while not stop.is_set():
        handle = model[0].register_forward_hook(lambda module, inputs, output: kept.append(output.sum()))
        out = model(torch.randn(16, 32))
        handle.remove()
        loss = Square.apply(out).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del kept[:-8]


def disturb():
    """What allocates and frees between two censuses, of all kinds."""
    sparse = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2))
    grown = [torch.randn(random.randint(1, 200)).requires_grad_() for _ in range(20)]
    total = sum(((g * 2).sum() for g in grown), torch.zeros(()))
    try:
        raise ValueError(total)
    except ValueError as error:
        caught = error
    with torch.autograd.graph.saved_tensors_hooks(lambda x: [x], lambda x: x[0]):
        packed = torch.ones(8, requires_grad=True).sin()  # exp() would save its result: a cycle for ever
    generator = (x for x in grown)
    next(generator)
    return sparse, grown, caught, packed, generator


def in_two_pauses(census, i, batches, held):
    """The second mark with the arithmetic beside, while what it saw goes and other things come in its place."""
    if census.mark is None and not census.first(i - 1):
        return held
    if not census.begin(i):
        return held
    next(batches)
    held = [disturb()] + (held[:5] if i % 3 else [])
    if i % 17 == 1:
        gc.collect()
    if i % 29 == 1:
        census.pending = None  # forgotten while it is under way
        return held
    if i % 31 == 1:
        child = os.fork()
        if child == 0:
            os._exit(0 if census.finish() is None else 1)
        os.waitpid(child, 0)
    census.finish()
    return held


def main():
    censuses = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    stop = threading.Event()
    # The worker first: a process forked while a thread imports something waits for that thread's lock for ever.
    batches = iter(DataLoader(Numbers(), batch_size=8, num_workers=1))
    next(batches)
    threads = [threading.Thread(target=train, args=(stop, i), daemon=True) for i in range(3)]
    for thread in threads:
        thread.start()
    census, begun, held = _census.Census(), time.time(), []
    _census._TWO_PAUSES_FROM = 0
    census.first(0)
    for i in range(1, censuses + 1):
        next(batches)
        held = [disturb()] + held[:5]
        if i % 7 == 0:
            (gc.disable if gc.isenabled() else gc.enable)()
        if i % 101 == 0:
            gc.freeze()
        if i % 101 == 50:  # else the garbage that was frozen would stay for ever
            gc.unfreeze()
        if i % 11 == 0:
            _walk.take(True)
        if i % 13 == 0:
            _walk.paths(held[0][1][0], 3)
        if i % 2 == 0:
            census.second(i, keep=True)
        else:
            held = in_two_pauses(census, i, batches, held)
        if census.trouble and "was gone" in census.trouble:  # disturb()'s, by then
            census.trouble = None
        if census.trouble:
            raise SystemExit(f"census {i}: {census.trouble}")
        if i % 100 == 0:
            print(f"{i} censuses in {time.time() - begun:.0f} s, {census.info['objects']} objects", flush=True)
    stop.set()
    for thread in threads:
        thread.join()
    print(f"survived {censuses} censuses")


if __name__ == "__main__":
    main()
