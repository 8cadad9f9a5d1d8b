"""A loop that mostly waits for its DataLoader (one worker)."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Items(Dataset):
    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        return torch.rand(3, 32, 32, generator=g).sqrt(), index % 10


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(DataLoader(Items(), batch_size=16, num_workers=1))

    def step():
        x, y = next(batches)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step
