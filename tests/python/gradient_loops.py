"""What the tests of automatic gradient findings share: a guard on small training loops."""
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from lowtide import _autoguard  # noqa: E402


@pytest.fixture
def guard():
    torch.manual_seed(0)
    made, detach = _autoguard.attach(torch)
    made.paced = False
    yield made
    detach()
    assert made.failure is None
    assert not torch.is_anomaly_enabled()


def found(guard, code=None):
    return [f for f in guard.sink.findings.values() if code in (None, f["code"])]


def mlp(inputs=12, hidden=40):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))


def loop(model, optimizer, steps, *, loss_of=None, before=None, after=None):
    for step in range(steps):
        x = torch.randn(16, 12)
        if before:
            before(step)
        loss = loss_of(model, x, step) if loss_of else F.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        if after:
            after(step)
        optimizer.step()
