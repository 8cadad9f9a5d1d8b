#!/usr/bin/env python3
"""Gradients: the check against what people write by hand, the clip against PyTorch's, the cost under `run`.

usage: bench/gradients.py [--rounds N] [--threads N]

Every figure is a ratio of medians of processor time (--wall: of the clock's) taken in alternation in one run.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

from lowtide import _autoguard
from lowtide.gradients import Gradients
from lowtide.gradients_scan import scan


clock = time.process_time


def alternate(functions, rounds):
    times = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            started = clock()
            function()
            times[name].append(clock() - started)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def parameters(shapes):
    out = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    for parameter in out:
        parameter.grad = torch.randn_like(parameter)
    return out


def by_hand(group):
    return [(p.grad.norm().item(), p.grad.isnan().any().item()) for p in group]


def checks(rounds):
    rows = {}
    for name, shapes in {"120 MB, 30 tensors": [(1000, 1000)] * 30, "GPT-2 small, 148 tensors":
                         [(50257, 768), (1024, 768)] + [s for _ in range(12) for s in
                          [(768, 2304), (2304,), (768, 768), (768,), (768, 3072), (3072,), (3072, 768), (768,)] + [(768,)] * 4] + [(768,)] * 2,
                         "MLP, 6 small tensors": [(64, 64), (64,)] * 3}.items():
        group = parameters(shapes)
        guard = Gradients(group, clip=1e9)
        total = sum(p.numel() for p in group)
        flat = torch.zeros(total)
        as_words = flat.view(torch.int32)
        found = alternate({
            "check": lambda: scan(group), "by_hand": lambda: by_hand(group),
            "read": lambda: as_words.max(),
            "foreach_norm": lambda: torch.stack(torch._foreach_norm([p.grad for p in group])).norm().item(),
            "clip": lambda: guard.clip(), "clip_grad_norm_": lambda: torch.nn.utils.clip_grad_norm_(group, 1e9),
        }, rounds)
        rows[name] = {"by_hand/check": found["by_hand"] / found["check"], "check/read": found["check"] / found["read"],
                      "check/foreach_norm": found["check"] / found["foreach_norm"],
                      "clip_grad_norm_/clip": found["clip_grad_norm_"] / found["clip"], "check_ms": found["check"] * 1e3}
    return rows


def under_run(rounds):
    """Steps with the automatic guard on against off, CPU time of blocks in alternation; off/off is the noise."""
    guard, detach = _autoguard.attach(torch)
    rows = {}
    for name, batch, hidden in (("MLP batch 8, hidden 64", 8, 64), ("MLP batch 64, hidden 512", 64, 512)):
        model = nn.Sequential(nn.Linear(32, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        x, y = torch.randn(batch, 32), torch.randn(batch, 1)

        def block(alive, steps=300):
            guard.alive = alive
            guard.spent = 1.0  # past the credit of a short run
            guard.mark = None  # the pause of the blocks without it is no step time
            for _ in range(steps):
                optimizer.zero_grad()
                F.mse_loss(model(x), y).backward()
                optimizer.step()

        block(True, 2000)
        ratios, null = [], []
        for number in range(rounds * 2):
            order = (False, True, False) if number % 2 else (True, False, False)
            times = []
            for alive in order:
                started = time.process_time()
                block(alive)
                times.append((alive, time.process_time() - started))
            off = [t for alive, t in times if not alive]
            ratios.append(next(t for alive, t in times if alive) / off[1])
            null.append(off[0] / off[1])
        rows[name] = {"on/off": statistics.median(ratios), "off/off": statistics.median(null), "step_us": off[1] / 300 * 1e6}
    detach()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--wall", action="store_true")
    args = parser.parse_args()
    if args.wall:
        global clock
        clock = time.perf_counter
    torch.set_num_threads(args.threads)
    print(json.dumps({"check": checks(args.rounds), "automatic": under_run(args.rounds)}, indent=1))


if __name__ == "__main__":
    main()
