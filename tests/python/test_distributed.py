"""lowtide.distributed: who is which rank, what is chosen and why, one rank without a launcher."""
import io
import os
import random
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402
from torch.utils.data import IterableDataset, TensorDataset  # noqa: E402

import lowtide.distributed as distributed  # noqa: E402
from lowtide._distributed_env import first_host, master_from_slurm, where_am_i  # noqa: E402


@pytest.mark.parametrize("environment, expected", [
    ({}, (0, 1, 0, 1)),
    ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, (5, 8, 1, 4)),
    ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_TASKS_PER_NODE": "2(x2)"}, (3, 4, 1, 2)),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (0, 1, 0, 1)),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, (1, 2, 1, 2)),
    ({"PMI_RANK": "6", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"}, (6, 8, 2, 4)),
    ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (1, 2, 1, 2)),
    ({"RANK": "x", "WORLD_SIZE": ""}, (0, 1, 0, 1)),
])
def test_the_launchers_are_understood(environment, expected):
    assert where_am_i(environment)[:4] == expected


def test_numbers_that_contradict_each_other_are_refused_with_the_remedy():
    with pytest.raises(RuntimeError, match="torchrun"):
        where_am_i({"RANK": "2", "WORLD_SIZE": "2"})


@pytest.mark.parametrize("nodes, first", [("a", "a"), ("a,b", "a"), ("a[03-07,9],b1", "a03"), ("gpu-[1,5]", "gpu-1"), ("", None)])
def test_the_first_host_of_a_node_list(nodes, first):
    assert first_host(nodes) == first
    assert master_from_slurm({"SLURM_JOB_NODELIST": nodes, "SLURM_JOB_ID": "41234"}) == (
        {"MASTER_ADDR": first, "MASTER_PORT": "21234"} if first else {})


@pytest.fixture
def job(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    state = torch.random.get_rng_state(), random.getstate()
    with distributed.setup(device="cpu", seed=5) as made:
        yield made
    torch.random.set_rng_state(state[0])
    random.setstate(state[1])


def test_one_rank_needs_no_launcher(job):
    assert (job.rank, job.world_size, job.device.type, job.is_main) == (0, 1, "cpu", True)
    model = nn.Linear(2, 2)
    assert job.wrap(model) is model
    assert not torch.distributed.is_initialized()
    with job.synced(model, False):
        pass


def test_every_choice_has_a_reason_and_rank_0_prints_them(job):
    job.wrap(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), sync_batch_norm=True)
    job.loader(TensorDataset(torch.ones(8, 4)), batch_size=2)
    assert all(choice and reason for choice, reason in job.choices)
    out = io.StringIO()
    text = job.explain(out)
    assert all(choice in text for choice, _ in job.choices) and "SyncBatchNorm needs a GPU" in text
    assert out.getvalue().count("\n") == text.count("\n") + 1


def test_a_second_set_up_is_refused(job):
    with pytest.raises(RuntimeError, match="close"):
        distributed.setup()


def test_seeds_are_the_same_twice_and_common_draws_leave_no_trace(job):
    before = torch.random.get_rng_state()
    with job.common():
        first = torch.rand(3)
    assert torch.equal(torch.random.get_rng_state(), before)
    with job.common():
        assert torch.equal(torch.rand(3), first)
    with job.common(salt=1):
        assert not torch.equal(torch.rand(3), first)


def test_loaders_change_their_order_and_evaluation_keeps_all(job):
    data = TensorDataset(torch.arange(10.0))
    train, evaluate = job.loader(data, batch_size=4), job.loader(data, batch_size=4, shuffle=False)
    orders = [torch.cat([x for x, in train]).tolist() for _ in range(3)]
    assert all(len(order) == 8 for order in orders) and orders[0] != orders[1]
    assert torch.cat([x for x, in evaluate]).tolist() == list(range(10))
    assert train.epoch == 3


def test_iterable_datasets_are_passed_through(job):
    class Numbers(IterableDataset):
        def __iter__(self):
            return iter(range(5))

    assert [int(v) for batch in job.loader(Numbers(), batch_size=2, num_workers=0) for v in batch] == [0, 1, 2, 3, 4]


def test_unused_parameters_are_found_and_buffers_put_back():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm, self.extra = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)

        def forward(self, x):
            return {"out": self.norm(self.a(x))}

    model, state = Net(), torch.random.get_rng_state()
    mean = model.norm.running_mean.clone()
    assert distributed.unused_parameters(model, torch.randn(8, 4), torch.device("cpu")) == ["extra.weight", "extra.bias"]
    assert torch.equal(model.norm.running_mean, mean) and model.norm.num_batches_tracked == 0
    assert all(p.grad is None for p in model.parameters())
    torch.random.set_rng_state(state)


class _Cuda:
    def __init__(self, count):
        self.count = count

    def device_count(self):
        return self.count


@pytest.mark.parametrize("count, ranks, nccl, backend", [(4, 4, True, "nccl"), (1, 2, True, "gloo"), (4, 4, False, "gloo")])
def test_backends_of_gpus(monkeypatch, count, ranks, nccl, backend):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: nccl)
    chosen, reason = distributed._backend(torch.device("cuda", 0), ranks)
    assert backend in chosen and reason


RANKS = '''
import sys, torch, lowtide.distributed
from torch import nn
from torch.utils.data import TensorDataset
job = lowtide.distributed.setup(seed=1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 1), nn.Linear(4, 1)
    def forward(self, x):
        return self.a(x) if job.rank == 0 else self.a(x) + self.b(x)
model = job.wrap(Net(), sample=torch.ones(2, 4))
loader = job.loader(TensorDataset(torch.arange(40).reshape(10, 4).float()), batch_size=2)
seen = []
for epoch in range(2):
    rows = [int(v) for x, in loader for v in x[:, 0]]
    for x, in loader: break
    seen.append(rows)
with job.common(): common = torch.rand(1).item()
own = torch.rand(1).item()
gathered = [None] * job.world_size
torch.distributed.all_gather_object(gathered, (seen, common, own, model.find_unused_parameters))
if job.is_main: print(repr(gathered))
'''


def test_two_ranks(tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)],
                          capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    (seen0, common0, own0, unused0), (seen1, common1, own1, unused1) = eval(done.stdout.strip().splitlines()[-1])
    for first, second in zip(seen0, seen1):
        assert not set(first) & set(second) and len(first) == len(second) == 4
    assert seen0[0] != seen0[1], "a new order in the second epoch"
    assert common0 == common1 and own0 != own1
    assert unused0 is True and unused1 is True, "one rank's sample leaves a parameter out: all choose alike"
