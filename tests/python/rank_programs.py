"""Programs of several ranks that know nothing of lowtide: small faulty ones, healthy twins, and a job that runs them."""
import json
import os
import socket
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this PyTorch has no gloo: ranks cannot be tried", allow_module_level=True)

HEAD = '''
import contextlib, copy, os, sys, time
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
steps = 70
torch.manual_seed(0)
X = torch.randn(400, 16)
Y = (X.sum(1) > 0).long()
data = TensorDataset(X, Y)
def net():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
def batch():
    index = torch.randint(0, 400, (10,))
    return X[index], Y[index]
def epochs(loader, model, opt, each_epoch=lambda epoch: None, each_step=lambda: None):
    done = epoch = 0
    while done < steps:
        each_epoch(epoch)
        for x, y in loader:
            each_step()
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
            done += 1
            if done == steps:
                break
        epoch += 1
'''

MADE = '''
torch.manual_seed(1 + rank)
for step in range(steps):
    {before}
    x, y = batch()
    opt.zero_grad()
    F.cross_entropy({forward}, y).backward()
    {after}
    opt.step()
'''


def made(wrap="model = DDP(net())", opt="opt = torch.optim.AdamW(model.parameters())", before="pass", forward="model(x)", after="pass"):
    return f"{wrap}\n{opt}\n" + MADE.format(before=before, forward=forward, after=after)


def loaded(loader, more=""):
    return f"model = DDP(net())\nopt = torch.optim.AdamW(model.parameters())\n{loader}\nepochs(loader, model, opt{more})\n"


SHARED_SAMPLER = "loader = DataLoader(data, batch_size=20, sampler=DistributedSampler(data))"
SET_EPOCH = ", loader.sampler.set_epoch"

FAULTS = {  # name -> (program, codes that must be there, a word of the finding)
    "no_set_epoch": (loaded(SHARED_SAMPLER), {"LT601"}, "set_epoch"),
    "set_epoch_always_zero": (loaded(SHARED_SAMPLER, ", lambda epoch: loader.sampler.set_epoch(0)"), {"LT601"}, "set_epoch"),
    "own_sampler": ('''
class Mine(torch.utils.data.Sampler):
    epoch = 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __len__(self):
        return 400 // world
    def __iter__(self):
        return iter(torch.randperm(400, generator=torch.Generator().manual_seed(self.epoch))[rank::world].tolist())
''' + loaded("loader = DataLoader(data, batch_size=20, sampler=Mine())"), {"LT601"}, "Mine.set_epoch"),
    "same_data": (loaded("torch.manual_seed(7)\nloader = DataLoader(data, batch_size=10, shuffle=True)"), {"LT602"}, "RandomSampler"),
    "same_share": (loaded("loader = DataLoader(data, batch_size=10, sampler=DistributedSampler(data, world, 0))", SET_EPOCH),
                   {"LT602", "LT603"}, "same data"),
    "seeds": (loaded("loader = DataLoader(data, batch_size=10, sampler=DistributedSampler(data, seed=rank))", SET_EPOCH), {"LT603"}, "seed"),
    "no_sampler": (loaded("torch.manual_seed(rank)\nloader = DataLoader(data, batch_size=10, shuffle=True)"), {"LT604"}, "DistributedSampler"),
    "module": (made(forward="model.module(x)"), {"LT606", "LT607"}, "model.module"),
    "kept_reference": (made(wrap="inner = net()\nmodel = DDP(inner)", forward="inner(x)"), {"LT606", "LT607"}, "reference"),
    "no_sync_for_ever": (made(before="model.require_backward_grad_sync = False"), {"LT606"}, "no_sync"),
    "clip_on_one_rank": (made(after="if rank == 0: nn.utils.clip_grad_norm_(model.parameters(), 0.01)"), {"LT607"}, "differ"),
    "loaded_on_one_rank": (made(before="if rank == 1 and step == 5: nn.init.ones_(model.module[2].weight)"), {"LT607"}, "rank 1"),
    "thawed": (made(wrap="inner = net()\nfor p in inner[0].parameters(): p.requires_grad_(False)\nmodel = DDP(inner)\n"
                    "for p in inner[0].parameters(): p.requires_grad_(True)"), {"LT608"}, "unfrozen"),
    "another_optimizer": (made(wrap="inner = net()\nmodel = DDP(copy.deepcopy(inner))", opt="opt = torch.optim.SGD(inner.parameters(), 0.1)"),
                          {"LT608"}, "no optimizer updates"),
    "needless": (made(wrap="model = DDP(net(), find_unused_parameters=True)"), {"LT609"}, "find_unused_parameters"),
    "statistics": (made(wrap="model = DDP(nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 2)), broadcast_buffers=False)"),
                   {"LT611"}, "running_mean"),
    "accumulation": (made(before="for k in range(3): x, y = batch()", forward="model(x)",
                          after="").replace("F.cross_entropy(model(x), y).backward()",
                                            "[(F.cross_entropy(model(x), y) / 4).backward() for k in range(4)]"), {"LT612"}, "no_sync"),
    "slow_compute": (made(before="time.sleep(0.01 + 0.03 * (rank == 1))"), {"LT613"}, "compute"),
    "slow_data": ('''
class Slow(TensorDataset):
    def __getitem__(self, index):
        time.sleep(0.004 * (rank == 0))
        return super().__getitem__(index)
''' + loaded("loader = DataLoader(Slow(X, Y), batch_size=10, sampler=DistributedSampler(data))", SET_EPOCH), {"LT613"}, "rank 0"),
    "never_wrapped": (made(wrap="model = net()"), {"LT619"}, "apart"),
}

HEALTHY = {
    "sampler": loaded(SHARED_SAMPLER, SET_EPOCH) + '''
model.eval()
with torch.no_grad():
    for x, y in DataLoader(data, batch_size=100):
        model.module(x)
total = torch.ones(1)
dist.all_reduce(total)
dist.barrier()
''',
    "shards": loaded("mine = TensorDataset(X[rank::world], Y[rank::world])\nloader = DataLoader(mine, batch_size=20, shuffle=True)"),
    "iterable": '''
class Share(IterableDataset):
    def __iter__(self):
        return ((X[i], Y[i]) for i in range(rank, 400, world))
''' + loaded("loader = DataLoader(Share(), batch_size=20)"),
    "no_sync": made(after="pass").replace("F.cross_entropy(model(x), y).backward()", '''
    for k in range(3):
        with model.no_sync() if k < 2 else contextlib.nullcontext():
            x, y = batch()
            (F.cross_entropy(model(x), y) / 3).backward()'''),
    "averaged_by_hand": made(wrap="model = net()", after="[dist.all_reduce(p.grad) for p in model.parameters()]; [p.grad.div_(world) for p in model.parameters()]"),
    "adversarial": '''
G, D = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))), DDP(net())
og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
torch.manual_seed(1 + rank)
one, zero = torch.ones(10, dtype=torch.long), torch.zeros(10, dtype=torch.long)
for step in range(steps):
    fake = G(torch.randn(10, 8))
    od.zero_grad()
    F.cross_entropy(D(torch.randn(10, 16) + 1), one).backward()
    F.cross_entropy(D(fake.detach()), zero).backward()
    od.step()
    og.zero_grad()
    F.cross_entropy(D.module(fake), one).backward()
    og.step()
''',
    "average_and_checkpoint": made(wrap="model = DDP(nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 2)))\naverage = copy.deepcopy(model.module)",
                                   after="[a.data.lerp_(b.data, 0.1) for a, b in zip(average.parameters(), model.module.parameters())]",
                                   before="rank == 0 and step == 30 and torch.save(model.module.state_dict(), os.devnull)"),
    "needed": '''
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.calls = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 2), 0
    def forward(self, x):
        self.calls += 1
        x = self.a(x)
        return self.c(x + self.b(x) if self.calls % 3 else x)
''' + made(wrap="model = DDP(Net(), find_unused_parameters=True)"),
}


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


class Job:
    def __init__(self, lowtide_binary, folder):
        self.binary, self.folder, self.script = lowtide_binary, folder / "out", folder / "program.py"
        self.env = {**os.environ, "NO_COLOR": "1", "LOWTIDE_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}

    def line(self, program, ranks):
        self.script.write_text(HEAD + program + "\nif dist.is_initialized():\n    dist.destroy_process_group()\n")
        return [self.binary, "run", "-o", self.folder, "--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks),
                "--master-port", port(), str(self.script)]

    def __call__(self, program, ranks=2, **env):
        done = subprocess.run(self.line(program, ranks), env={**self.env, **env}, capture_output=True, text=True, timeout=240)
        return done, self.found()

    def found(self, code="LT6"):
        document = json.loads((self.folder / "findings.json").read_text())
        return [f for f in document["findings"] if f["code"].startswith(code)]

    def of(self, word):
        """The line of the program that holds `word`."""
        return [n for n, line in enumerate(self.script.read_text().splitlines(), 1) if word in line]


@pytest.fixture
def job(lowtide_binary, tmp_path):
    return Job(lowtide_binary, tmp_path)
