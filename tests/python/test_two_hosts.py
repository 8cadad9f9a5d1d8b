"""A job over two hosts with one run folder: nothing collides, every rank is shown by host, what goes wrong is named."""
import json
import os
import re
import signal
import time

import pytest
import ringfile
from fleet import samples, value
from hosts import Job, make_cluster

pytest.importorskip("torch", reason="PyTorch is not installed: jobs over two hosts are real trainings")

# Trains until a file "stop" appears beside it, or for so many steps; leaves a file per rank once it is under way.
TRAIN = '''
import pathlib, sys, time
import torch
import torch.distributed as dist
from torch import nn
here = pathlib.Path(__file__).parent
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(0, 10, (32,)))
    loss.backward()
    optimizer.step()
    if rank == 2:
        kept.append(torch.ones(5000))
    if step == 40:
        (here / f"under-way-{rank}").touch()
    time.sleep(0.02)
dist.destroy_process_group()
'''


@pytest.fixture
def job(lowtide_binary, tmp_path):
    cluster = make_cluster()
    (tmp_path / "train.py").write_text(TRAIN)

    def start(steps):
        return Job(cluster, lowtide_binary, tmp_path / "shared", tmp_path / "train.py", steps)

    yield start
    cluster.close()


def under_way(job):
    for rank in range(4):
        job.wait_for_file(job.folder.parent / f"under-way-{rank}")


def findings(lowtide, folder, code):
    document = json.loads(lowtide("report", "--format", "json", folder).stdout)
    return [finding for finding in document["findings"] if finding["code"] == code]


def test_rings_of_both_hosts_land_in_one_folder(job, lowtide):
    running = job(150)
    said = running.wait()
    assert all(run.returncode == 0 for run in running.runs), said
    rings = ringfile.rings(running.folder)
    assert {name: ring.steps()[-1]["step"] for name, ring in rings.items() if name.startswith("rank")} == {
        f"rank{rank}.ring": 150 for rank in range(4)}
    launchers = sorted(name for name in rings if name.startswith("proc"))
    assert len(launchers) == 2, "both launchers, though they had the same process number"
    assert not [path for path in running.folder.iterdir() if path.is_symlink()], "each host brought its rings home"

    text = lowtide("report", running.folder).stdout
    assert "150 steps on 4 ranks" in text
    assert re.search(r"host alpha, ranks 0, 1\n", text) and re.search(r"host beta, ranks 2, 3\n", text), text
    assert re.search(r"^LEAK CPU tensors, rank 2:.*LT208", text, re.MULTILINE) and "kept[*]" in text, text
    page = samples(lowtide("export", "--once", running.folder).stdout)
    for rank in range(4):
        assert value(page, "lowtide_steps_total", rank=rank) == 150
        assert value(page, "lowtide_rank_info", rank=rank, host="alpha" if rank < 2 else "beta") == 1


def test_a_killed_rank_is_named(job, lowtide):
    running = job(100_000)
    under_way(running)
    os.kill(running.rank(3), signal.SIGKILL)
    running.wait()
    assert any(run.returncode != 0 for run in running.runs)
    text = lowtide("report", running.folder).stdout
    assert re.search(r"^  rank 3 \(pid \d+\): .*killed", text, re.MULTILINE), text
    check_finding(lowtide, running.folder, "LT616", "rank 3")


def test_a_stopped_rank_is_named(job, lowtide):
    running = job(100_000)
    under_way(running)
    os.kill(running.rank(1), signal.SIGSTOP)
    wait_for_word(running, "LT615")
    end(running)
    check_finding(lowtide, running.folder, "LT615", "rank 1")


def test_a_cut_network_is_named(job, lowtide):
    running = job(100_000)
    under_way(running)
    running.cluster.cut("beta")
    wait_for_word(running, "LT614")
    end(running)
    check_finding(lowtide, running.folder, "LT614", "wait")


def wait_for_word(running, code, seconds=90):
    """Until a host's run has left a finding of this code in the folder."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if any(code in path.read_text() for path in running.folder.glob("findings-*.jsonl")):
            return
        time.sleep(0.5)
    told = {path.name: path.read_text() for path in running.folder.glob("findings-*.jsonl")}
    end(running)
    raise AssertionError(f"no {code}: {told}")


def end(running):
    for rank in range(4):
        for pid in running.cluster.find(RANK=rank, WORLD_SIZE=4):
            os.kill(pid, signal.SIGKILL)
    running.wait()


def check_finding(lowtide, folder, code, words):
    found = findings(lowtide, folder, code)
    assert found and words in found[0]["message"], found
