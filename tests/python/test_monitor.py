"""The loop helper and declared lifetimes."""
import logging
import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402

from lowtide import monitor_lifetimes  # noqa: E402
from lowtide.checkpoint import Checkpointer  # noqa: E402
from lowtide.monitor import LifetimeError, Monitor, figures, keep  # noqa: E402


@pytest.fixture
def parts():
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    monitor = Monitor(model, optimizer)
    yield model, optimizer, monitor
    monitor.close()
    monitor_lifetimes._declared.clear()


def train(model, optimizer, monitor, scale=1.0):
    loss = model(torch.randn(4, 8)).pow(2).mean() * scale
    optimizer.zero_grad()
    monitor.backward(loss)
    optimizer.step()
    return loss


def test_clips_at_one_by_itself(parts):
    model, optimizer, monitor = parts
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm())))
    with monitor.step():
        train(model, optimizer, monitor, 1e4)
    assert seen[0] == pytest.approx(1.0, rel=1e-4) and monitor._report.total_norm > 100


def test_log_lines_and_sinks(parts):
    model, optimizer, _ = parts
    lines, scalars, logged = [], [], []

    class Board:
        def add_scalar(self, name, value, step):
            scalars.append((name, step))

    class Tracker:
        def log(self, values, step):
            logged.append((sorted(values), step))

    monitor = Monitor(model, optimizer, log_every=2, sinks=[Board(), Tracker()], emit=lines.append)
    for batch in monitor.steps([torch.randn(4, 8)] * 4):
        train(model, optimizer, monitor)
    monitor.close()
    assert len(lines) == 2 and lines[0].startswith("step 2, rss ") and "gradient norm" in lines[0] and "loss" in lines[0]
    assert ("lowtide/rss", 4) in scalars and logged[0][1] == 2 and "lowtide/heap" in logged[0][0]


def test_growth_above_the_baseline_is_warned_about(parts, monkeypatch, caplog):
    model, optimizer, _ = parts
    level = iter([1000, 1000, 1000, 1210, 1220, 1230, 1400, 1400, 1400, 1400])
    monkeypatch.setattr("lowtide.monitor.figures", lambda: {"rss": next(level)})
    monitor = Monitor(log_every=1, warm_up=1, emit=lambda text: None)
    with caplog.at_level(logging.WARNING, "lowtide"):
        for _ in range(10):
            monitor.end_step()
    assert len(monitor.warnings) == 2 and "23 %" not in monitor.warnings[0] and "above its baseline" in monitor.warnings[0]


def test_a_single_spike_is_no_growth(monkeypatch):
    level = iter([1000, 1000, 5000, 1000, 1000, 5000, 1000])
    monkeypatch.setattr("lowtide.monitor.figures", lambda: {"rss": next(level)})
    monitor = Monitor(log_every=1, warm_up=1, emit=lambda text: None)
    for _ in range(7):
        monitor.end_step()
    assert not monitor.warnings


def test_figures_are_bytes():
    values = figures()
    assert values["rss"] > 10_000_000 and values["heap"] > 100_000


def test_resumes_in_the_middle(tmp_path):
    data = torch.utils.data.TensorDataset(torch.arange(40.0).reshape(10, 4))

    def run(stop):
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        loader = torch.utils.data.DataLoader(data, batch_size=1, shuffle=True)
        seen = []
        with Checkpointer(tmp_path, model=model, optimizer=optimizer, loader=loader, every_steps=None, every_seconds=None, every_epoch=False) as keeper:
            keeper.resume()
            monitor = Monitor(model, optimizer, checkpointer=keeper)
            for (x,) in monitor.steps(loader, epochs=2):
                optimizer.zero_grad()
                monitor.backward(model(x).sum())
                optimizer.step()
                seen.append(float(x[0, 0]))
                if len(seen) == stop:
                    break
            if stop:
                keeper.step_number += 1  # the step that the break left unfinished
                assert keeper.save(wait=True)
            monitor.close()
        return seen

    torch.manual_seed(3)
    first = run(13)
    second = run(None)
    assert len(first) + len(second) == 20
    assert sorted(first[:10]) == sorted(first[10:] + second) == [4.0 * i for i in range(10)]


def test_strict_step_passes_a_clean_loop(parts):
    model, optimizer, monitor = parts
    total = 0.0
    for _ in range(4):
        with monitor.step(strict=True):
            loss = train(model, optimizer, monitor)
            total += loss.item()
    assert math.isfinite(total) and monitor.number == 4


def test_strict_step_names_the_list(parts):
    model, optimizer, monitor = parts
    history = []
    with pytest.raises(LifetimeError, match=r"history\[\*\]") as raised:
        for _ in range(3):
            with monitor.step(strict=True):
                history.append(train(model, optimizer, monitor))
    assert raised.value.holders[0][1] == ()


class Trainer:
    def __init__(self):
        self.outputs = {"logits": []}
        self.last = None


def test_strict_step_names_the_attribute(parts):
    model, optimizer, monitor = parts
    trainer = Trainer()
    with pytest.raises(LifetimeError, match=r"trainer\.outputs\['logits'\]\[\*\]"):
        with monitor.step(strict=True):
            trainer.outputs["logits"].append(train(model, optimizer, monitor))


def test_declared_things_may_live(parts):
    model, optimizer, monitor = parts
    ema = keep(nn.Linear(8, 8), why="teacher")
    bank = keep([], why="feature bank")
    for _ in range(3):
        with monitor.step(strict=True):
            train(model, optimizer, monitor)
            bank.append(torch.randn(4))
            ema.weight.data = model.weight.detach().clone()


def test_keep_wants_a_reason():
    with pytest.raises(ValueError, match="say why"):
        keep([], why="")
