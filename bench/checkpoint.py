#!/usr/bin/env python3
"""Checkpoints: the stall, the time until durable, the speed of training meanwhile, the load; against torch.save,
torch.distributed.checkpoint and safetensors (where installed), on the same disk in one run.

usage: bench/checkpoint.py [--folder DIR] [--megabytes N] [--rounds N]

The disk's limit is a direct write of the same bytes from prepared memory by four threads, synced.
"""
import argparse
import json
import os
import shutil
import statistics
import tempfile
import threading
import time

import torch

from lowtide import _guard
from lowtide.checkpoint_file import Image, Staging, read_file, write_file

TENSORS = 150


def timed(function):
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def durable(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def drop_cache(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def torch_save(state, folder):
    path = os.path.join(folder, "torch.pt")
    torch.save(state, path + ".tmp")
    durable(path + ".tmp")
    os.replace(path + ".tmp", path)


def dcp_save(state, folder):
    import torch.distributed.checkpoint as dcp

    shutil.rmtree(os.path.join(folder, "dcp"), ignore_errors=True)
    dcp.save(state, checkpoint_id=os.path.join(folder, "dcp"))


def safetensors_save(state, folder):
    from safetensors.torch import save_file

    path = os.path.join(folder, "st.safetensors")
    save_file(state, path)
    durable(path)


def saves(state, folder, rounds):
    staging = Staging(sum(t.numel() * t.element_size() for t in state.values()) + (2 << 20))
    size = staging.bytes
    rows = {}

    def note(name, wall, cpu):
        rows.setdefault(name, []).append((wall, cpu))

    peers = {"torch.save": torch_save, "dcp": dcp_save}
    try:
        import safetensors  # noqa: F401

        peers["safetensors"] = safetensors_save
    except ImportError:
        print("safetensors is not installed: left out", flush=True)
    for _ in range(rounds):
        note("disk", *timed(lambda: _guard.write(folder, "limit.tmp", "limit", staging.address, size, 4, 1, 1)))
        image = Image(state)
        note("stall", *timed(lambda: image.fill(staging)))
        note("write", *timed(lambda: image.write(staging, folder, "ours.safetensors")))
        for name, save in peers.items():
            note(name, *timed(lambda save=save: save(state, folder)))
    medians = {name: {"wall_s": statistics.median(w for w, _ in v), "cpu_s": statistics.median(c for _, c in v)} for name, v in rows.items()}
    ratios = {f"{name} / disk": statistics.median(a[0] / d[0] for a, d in zip(rows[name], rows["disk"])) for name in rows if name != "disk"}
    ratios["stall / torch.save"] = statistics.median(a[0] / b[0] for a, b in zip(rows["stall"], rows["torch.save"]))
    return {"medians": medians, "ratios": ratios, "stall_cpu_s_per_GB": medians["stall"]["cpu_s"] / (size / 1e9)}


def during_write(state, folder, rounds):
    """Steps per second while a save is written, over those of the idle process."""
    staging = Staging()
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, 512)
    torch.set_num_threads(1)

    def steps(running):
        count, started = 0, time.perf_counter()
        while running():
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
            count += 1
        return count / (time.perf_counter() - started)

    def while_writing(work):
        thread = threading.Thread(target=work)
        thread.start()
        rate = steps(thread.is_alive)
        thread.join()
        return rate

    def ours():
        image.write(staging, folder, "ours.safetensors")

    def idle(seconds):
        deadline = time.perf_counter() + seconds
        return steps(lambda: time.perf_counter() < deadline)

    # "nothing" is a thread that sleeps as long as the save took: what else the machine does meanwhile.
    rows = {"ours": [], "nothing": [], "torch.save thread": []}
    for _ in range(rounds):
        image = Image(state)
        image.fill(staging)
        for name, work in (("ours", ours), ("nothing", lambda: time.sleep(took)), ("torch.save thread", lambda: torch_save(state, folder))):
            before = idle(0.5)
            started = time.perf_counter()
            rate = while_writing(work)
            took = time.perf_counter() - started
            rows[name].append(rate / statistics.mean((before, idle(0.5))))
    return {name: statistics.median(values) for name, values in rows.items()}


def loads(folder, rounds):
    ours, theirs = os.path.join(folder, "ours.safetensors"), os.path.join(folder, "torch.pt")
    rows = {"cold": [], "warm": []}
    for _ in range(rounds):
        for kind in rows:
            pair = []
            for path, load in ((ours, read_file), (theirs, lambda p: torch.load(p, weights_only=True))):
                drop_cache(path) if kind == "cold" else load(path)
                pair.append(timed(lambda: load(path))[0])
            rows[kind].append(pair)
    return {kind: {"ours_s": statistics.median(a for a, _ in v), "torch.load / ours": statistics.median(b / a for a, b in v)} for kind, v in rows.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    each = args.megabytes * 1_000_000 // 4 // TENSORS
    state = {f"layer{i}.weight": torch.randn(each) for i in range(TENSORS)}
    with tempfile.TemporaryDirectory(dir=args.folder or os.getcwd()) as folder:
        write_file(os.path.join(folder, "warm.safetensors"), {"x": torch.ones(1)})
        out = {"save": saves(state, folder, args.rounds), "during_write": during_write(state, folder, args.rounds),
               "load": loads(folder, args.rounds)}
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
