"""A dataset that grows in the DataLoader's workers is found, however they are started (forkserver is the default from Python 3.14)."""
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: there are no DataLoaders to try")

PROGRAM = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset

class Growing(Dataset):
    def __init__(self):
        self.cache = []
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        self.cache.append(torch.zeros(2000))  # here
        return torch.randn(16)

if __name__ == "__main__":
    loader = DataLoader(Growing(), batch_size=8, num_workers=int(sys.argv[2]), multiprocessing_context=sys.argv[1])
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step, x in enumerate(loader):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        if step == 1500:
            break
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_dataset_that_grows_in_its_worker(record, method):
    done, found, folder = record(PROGRAM, method, 1)
    assert done.returncode == 0, done.stderr
    verdicts = {verdict["pool"]: verdict["verdict"] for verdict in found["verdicts"]}
    assert verdicts.get("workers") == "leak", verdicts
    holder = next(holder for holder in found["holders"] if holder["pool"] == "workers")
    assert "cache[*]" in holder["path"], holder
    assert [ring.name for ring in folder.glob("*.ring")] == ["rank0.ring"], "workers have no file"


def test_each_worker_is_told_at_its_share_of_a_step(record):
    """A step takes 8 samples of 8,000 bytes from one of two workers."""
    done, found, folder = record(PROGRAM, "fork", 2)
    assert done.returncode == 0, done.stderr
    rates = [holder["bytes_per_step"] for holder in found["holders"] if holder["pool"] == "workers" and "cache[*]" in holder["path"]]
    assert len(rates) == 2, found["holders"]
    assert all(0.8 * 32000 <= rate <= 1.3 * 32000 for rate in rates), rates
