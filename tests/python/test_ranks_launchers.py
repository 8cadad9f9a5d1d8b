"""Ranks as launchers make them: SLURM's tasks (its variables; on two nodes with one run folder) and `accelerate launch`."""
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys

import pytest
from hosts import make_cluster

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

ALONE = '''
import sys, time, torch
model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(60):
    optimizer.zero_grad()
    model(torch.ones(4, 64)).sum().backward()
    optimizer.step()
'''

TOGETHER = '''
import os, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo", rank=int(os.environ["SLURM_PROCID"]), world_size=int(os.environ["SLURM_NTASKS"]))
rank = dist.get_rank()
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
kept = []
for step in range(120):
    optimizer.zero_grad()
    model(torch.ones(4, 64)).sum().backward()
    optimizer.step()
    if rank == 3:
        kept.append(torch.ones(5000))
dist.destroy_process_group()
'''

ACCELERATED = '''
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(16, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data = TensorDataset(torch.randn(400, 16), torch.zeros(400, dtype=torch.long))
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=10, shuffle=True))
kept = []
for epoch in range(5):
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        if accelerator.process_index == 1:
            kept.append(torch.ones(5000))
accelerator.end_training()
'''


def task(number, tasks, local, here, **more):
    """The variables that SLURM gives a task."""
    return {"SLURM_JOB_ID": "4711", "SLURM_PROCID": str(number), "SLURM_NTASKS": str(tasks), "SLURM_LOCALID": str(local),
            "SLURM_NTASKS_PER_NODE": str(here), "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "LOWTIDE_PYTHON": sys.executable, **more}


def without_launcher():
    return {name: text for name, text in os.environ.items()
            if not name.startswith("SLURM_") and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}


def report(lowtide, folder):
    return json.loads(lowtide("report", "--format", "json", folder).stdout), lowtide("report", folder).stdout


def rings(folder):
    return {path.name for path in folder.glob("rank*.ring")}


def test_slurm_tasks_without_a_process_group_are_ranks(lowtide, lowtide_binary, tmp_path):
    script, folder = tmp_path / "train.py", tmp_path / "shared"
    script.write_text(ALONE)
    runs = [subprocess.Popen([lowtide_binary, "run", "-o", folder, script], env={**without_launcher(), **task(i, 3, i, 3)},
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for i in range(3)]
    for run in runs:
        assert run.wait(240) == 0, run.stderr.read()
    document, text = report(lowtide, folder)
    assert rings(folder) == {f"rank{i}.ring" for i in range(3)}
    assert {row["rank"] for row in document["verdicts"]} == {0, 1, 2}
    assert "60 steps on 3 ranks" in text


def test_one_slurm_task_is_one_process(lowtide, lowtide_binary, tmp_path):
    script, folder = tmp_path / "train.py", tmp_path / "shared"
    script.write_text(ALONE)
    subprocess.run([lowtide_binary, "run", "-o", folder, script], env={**without_launcher(), **task(0, 1, 0, 1)}, check=True,
                   capture_output=True, timeout=240)
    assert {row["rank"] for row in report(lowtide, folder)[0]["verdicts"]} == {0}


def test_slurm_tasks_of_two_nodes_in_one_folder(lowtide, lowtide_binary, tmp_path):
    cluster = make_cluster()
    script, folder = tmp_path / "train.py", tmp_path / "shared"
    script.write_text(TOGETHER)
    try:
        runs = []
        for number in range(4):
            node, local = divmod(number, 2)
            env = {**task(number, 4, local, 2, SLURM_NODEID=str(node), SLURM_NNODES="2", SLURM_STEP_NODELIST="alpha,beta"),
                   "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29655"}
            runs.append(cluster.start(cluster.names[node], lowtide_binary, "run", "-o", folder, script, env=env))
        said = [run.communicate(timeout=240)[0] for run in runs]
        assert all(run.returncode == 0 for run in runs), said
    finally:
        cluster.close()
    document, text = report(lowtide, folder)
    assert rings(folder) == {f"rank{i}.ring" for i in range(4)}
    assert {row["rank"] for row in document["verdicts"]} == {0, 1, 2, 3}
    assert "120 steps on 4 ranks" in text
    assert re.search(r"host alpha, ranks 0, 1\n", text) and re.search(r"host beta, ranks 2, 3\n", text), text
    facts = [json.loads(path.read_text().splitlines()[0]) for path in folder.glob("facts-rank*.jsonl")]
    assert sorted((row["rank"], row["local_rank"], row["host"]) for row in facts) == [
        (0, 0, "alpha"), (1, 1, "alpha"), (2, 0, "beta"), (3, 1, "beta")]
    assert any(f["code"] == "LT208" and "rank 3" in f["message"] for f in document["findings"]), document["findings"]


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed: `accelerate launch` cannot be tried")
def test_accelerate_launch(lowtide, tmp_path):
    script, folder = tmp_path / "train.py", tmp_path / "run"
    script.write_text(ACCELERATED)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = lowtide("run", "-o", folder, "--", sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
                   "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", port, script,
                   env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    document, text = report(lowtide, folder)
    assert rings(folder) == {"rank0.ring", "rank1.ring"}
    assert {row["rank"] for row in document["verdicts"]} == {0, 1}
    assert "100 steps on 2 ranks" in text, text
    assert any(f["code"] == "LT208" and "rank 1" in f["message"] for f in document["findings"]), document["findings"]
