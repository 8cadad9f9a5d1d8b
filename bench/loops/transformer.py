"""Two transformer layers, batch 8, 64 tokens: an ordinary small model."""
import torch
from torch import nn


def make():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.1)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(128, 50))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(8, 64, 128), torch.randint(0, 50, (8 * 64,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).reshape(-1, 50), y).backward()
        optimizer.step()

    return step
