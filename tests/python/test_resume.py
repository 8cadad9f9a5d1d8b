"""A run that was stopped inside an accumulation window and resumed in a new process equals one that was never stopped,
bit for bit: losses, weights, buffers, EMA. And each part of the state matters: without it the runs differ."""
import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("numpy", reason="NumPy is not installed")

import lowtide  # noqa: E402

PACKAGE = os.path.dirname(list(lowtide.__path__)[0])

PROGRAM = r'''
import multiprocessing
multiprocessing.set_start_method('fork')  # other methods import the program, which has no file here
import hashlib, json, random, sys
import numpy, torch
from torch import nn
import torch.nn.functional as F
from lowtide.checkpoint import Checkpointer, PerSample, Resumable
from lowtide.gradients import Gradients

folder, stop, workers, per_sample, leave_out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1", sys.argv[5]
MICRO, ACCUMULATE = 48, 2

class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        x = torch.full((6,), float(index)) / 40 + torch.randn(6) * 0.1 + random.random() * 0.1 + float(numpy.random.rand()) * 0.1
        return x, torch.tensor([index / 40.0])

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 16), nn.ReLU())
        self.head = nn.Linear(16, 1)
    def forward(self, x):
        return self.head(self.body(x))

class Scaler:  # a GradScaler's arithmetic, on the CPU
    def __init__(self):
        self.scale, self.good = 1024.0, 0
    def update(self):
        self.good += 1
        if self.good % 7 == 0:
            self.scale *= 2
    def state_dict(self):
        return {"scale": self.scale, "good": self.good}
    def load_state_dict(self, state):
        self.scale, self.good = state["scale"], state["good"]

class Sampler(torch.utils.data.Sampler):
    def __init__(self, n):
        self.n, self.epoch = n, 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __iter__(self):
        return iter(torch.randperm(self.n, generator=torch.Generator().manual_seed(self.epoch)).tolist())
    def __len__(self):
        return self.n

torch.manual_seed(7 if stop >= 0 else 99); random.seed(7 if stop >= 0 else 99); numpy.random.seed(7 if stop >= 0 else 99)
torch.set_num_threads(1)
model = Net()
ema = Net()
ema.load_state_dict(model.state_dict())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 24)
scaler = Scaler()
gradients = Gradients(model, clip=0.5)
data = PerSample(Noisy(), seed=3) if per_sample else Noisy()
loader = Resumable(torch.utils.data.DataLoader(data, batch_size=4, sampler=Sampler(40), num_workers=workers))
noise = {"value": 0.0}
keeper = Checkpointer(folder, model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, ema=ema, gradients=gradients,
                      loader=loader, user=lambda: {"micro": micro, "noise": noise["value"]}, every_steps=None, every_seconds=None,
                      every_epoch=False)
micro = 0
if stop < 0:
    if leave_out:
        full = keeper.load_state
        def without(state, strict=True):
            keep = {}
            if leave_out in ("python", "numpy", "torch"):
                keep[leave_out] = state["rng"].pop(leave_out) if leave_out == "numpy" else state["rng"][leave_out]
                if leave_out == "python": state["rng"]["python"] = random.getstate()
                if leave_out == "torch": state["rng"]["torch"] = torch.get_rng_state()
            elif leave_out == "grads":
                state["grads"] = {}
            elif leave_out == "epoch":
                state["loader"] = {**state["loader"], "epoch": 0}
            elif leave_out == "position":
                state["loader"] = {**state["loader"], "start": None, "batches": 0}
            elif leave_out == "buffers":
                for key in list(state["model"][""]):
                    if "running" in key: state["model"][""][key] = model.state_dict()[key]
            else:
                keeper.parts[leave_out] = None
            return full(state, strict)
        keeper.load_state = without
    resumed = keeper.resume()
    assert resumed is not None and resumed.step == keeper.step_number, resumed
    micro, noise["value"] = resumed.user["micro"], resumed.user["noise"]

losses = {}
while micro < MICRO:
    for x, y in loader:
        loss = F.mse_loss(model(x), y) * (1 + 0.1 * random.random() + 0.1 * float(numpy.random.rand())) / ACCUMULATE
        (loss * scaler.scale).backward()
        losses[micro] = loss.item().hex()
        micro += 1
        if micro % ACCUMULATE == 0:
            for p in model.parameters():
                p.grad.div_(scaler.scale)
            if micro == 8:
                gradients.limit.current = 0.01  # as if the loss had oscillated
            gradients.clip(loss)
            optimizer.step(); optimizer.zero_grad(); scheduler.step(); scaler.update()
            with torch.no_grad():
                for a, b in zip(ema.parameters(), model.parameters()):
                    a.lerp_(b, 0.1)
            keeper.step()
        if micro == stop:
            assert keeper.save(wait=True), keeper.last_error
        if micro >= MICRO:
            break
def digest(tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()
print(json.dumps({"losses": losses, "weights": digest(model.parameters()), "buffers": digest(model.buffers()), "ema": digest(ema.state_dict().values())}))
'''


def run(folder, stop, workers=0, per_sample=False, leave_out=""):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder), str(stop), str(workers), str(int(per_sample)), leave_out],
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"}, timeout=300)
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout.splitlines()[-1])
    out["losses"] = {int(k): v for k, v in out["losses"].items()}
    return out


def same(whole, resumed, start):
    return ({k: v for k, v in whole["losses"].items() if k >= start} == resumed["losses"]
            and all(whole[k] == resumed[k] for k in ("weights", "buffers", "ema")))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The uninterrupted run, with a checkpoint after micro-batch 21 of 48: inside a window, inside an epoch."""
    folder = tmp_path_factory.mktemp("resume")
    return folder, run(folder, 21)


def test_everything_saved_is_identical(saved):
    folder, whole = saved
    assert same(whole, run(folder, -1), 21)


@pytest.mark.parametrize("part", ["torch", "numpy", "python", "optimizer", "scheduler", "scaler", "gradients", "ema", "grads",
                                  "buffers", "epoch", "position"])
def test_every_part_matters(saved, part):
    folder, whole = saved
    assert not same(whole, run(folder, -1, leave_out=part), 21)


@pytest.mark.parametrize("workers", [2, 3])
def test_workers(tmp_path, workers):
    whole = run(tmp_path, 21, workers)
    assert same(whole, run(tmp_path, -1, workers), 21)


def test_per_sample_is_exact_for_any_number_of_workers(tmp_path):
    whole = run(tmp_path, 21, 2, per_sample=True)
    for workers in (0, 2, 3):
        assert same(whole, run(tmp_path, -1, workers, per_sample=True), 21), workers
