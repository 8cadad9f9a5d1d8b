"""A small image classifier with a classic leak: the history keeps every step's logits with their graph."""
import sys

import torch
import torch.nn.functional as F
from torch import nn


class History:
    def __init__(self):
        self.losses = []
        self.logits = []

    def log(self, loss, logits):
        self.losses.append(loss.item())
        self.logits.append(logits)


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    history = History()
    for step in range(1, steps + 1):
        images, labels = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
        logits = model(images)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.log(loss, logits)
        if step % 100 == 0:
            print(f"step {step}: loss {sum(history.losses[-100:]) / 100:.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
