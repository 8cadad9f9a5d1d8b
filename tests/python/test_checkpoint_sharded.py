"""FSDP2 state on gloo: saved by two ranks, loaded by two exactly, by one resharded; damage is refused."""
import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("torch.distributed.fsdp", reason="this PyTorch has no torch.distributed")
if not hasattr(torch.distributed.fsdp, "fully_shard"):
    pytest.skip("this PyTorch has no FSDP2", allow_module_level=True)

import lowtide  # noqa: E402
from lowtide import checkpoint_store as store  # noqa: E402

PACKAGE = os.path.dirname(list(lowtide.__path__)[0])

PROGRAM = r'''
import hashlib, json, os, sys, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from lowtide.checkpoint_sharded import ShardedCheckpointer

folder, world, first, last, save_at = sys.argv[1], *map(int, sys.argv[2:6])
torch.set_num_threads(1)

def work(rank):
    dist.init_process_group("gloo", init_method=f"file://{folder}-meet-{os.getppid()}", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (world,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    keeper = ShardedCheckpointer(folder, model=model, optimizer=optimizer, every_steps=None, every_seconds=None, keep=2)
    resumed = keeper.resume()
    start = resumed.step if resumed else 0
    for step in range(start, last):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step))
        model(x).pow(2).mean().backward()
        optimizer.step(); optimizer.zero_grad()
        keeper.step()
        if step + 1 == save_at:
            assert keeper.save(), keeper.last_error
    h = hashlib.sha256()
    for p in model.parameters():
        h.update(p.full_tensor().detach().contiguous().numpy().tobytes())
    if rank == 0:
        print(json.dumps({"start": start, "weights": h.hexdigest()}), flush=True)
    dist.barrier()
    os._exit(0)

children = []
for rank in range(world):
    pid = os.fork()
    if pid == 0:
        try:
            work(rank)
        except BaseException as error:
            sys.stderr.write(f"rank {rank}: {type(error).__name__}: {error}\n"); sys.stderr.flush()
            os._exit(1)
    children.append(pid)
sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))
'''


def run(folder, world, last, save_at):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder), str(world), "0", str(last), str(save_at)], capture_output=True,
                          text=True, timeout=200, env={**os.environ, "PYTHONPATH": PACKAGE})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_exact_and_resharded(tmp_path):
    folder = tmp_path / "c"
    whole = run(folder, 2, 8, 5)
    (entry,) = store.entries(folder)
    entry.verify()
    again = run(folder, 2, 8, -1)
    assert again == {"start": 5, "weights": whole["weights"]}
    assert run(folder, 1, 8, -1)["start"] == 5  # another number of ranks

    shard = next(p for p in (folder / "step-000000000005" / "shards").iterdir() if p.suffix == ".distcp")
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert run(folder, 2, 1, -1)["start"] == 0  # damaged: refused on every rank, nothing else to fall back to
