"""The adapters against the real libraries, on tiny models."""
import os
import signal

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402


def test_sinks():
    from lowtide.integrations.sinks import send

    with pytest.raises(TypeError, match="neither"):
        send(object(), {}, 1)


def test_tensorboard_and_wandb_by_duck_typing(tmp_path):
    tensorboard = pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    assert tensorboard
    from torch.utils.tensorboard import SummaryWriter

    from lowtide.integrations.sinks import send

    writer = SummaryWriter(str(tmp_path))
    send(writer, {"lowtide/rss": 5, "text": "left out"}, 1)
    writer.close()
    assert os.listdir(tmp_path)


def lightning_parts():
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

    class Net(lightning.LightningModule):
        def __init__(self, stop_at=None, explode_at=None):
            super().__init__()
            self.layer = nn.Linear(4, 1)
            self.stop_at, self.explode_at = stop_at, explode_at

        def training_step(self, batch, index):
            if index == self.stop_at:
                os.kill(os.getpid(), signal.SIGUSR1)
            scale = 1e6 if self.explode_at is not None and index >= self.explode_at else 1.0
            return self.layer(batch[0]).pow(2).mean() * scale

        def validation_step(self, batch, index):
            return self.layer(batch[0]).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-9)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 4)), batch_size=1)
    return lightning, Net, data


def fit(lightning, module, data, callback, folder):
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False, default_root_dir=folder, callbacks=[callback])
    trainer.fit(module, data, data)
    return trainer


def test_lightning_stops_in_order_and_saves(tmp_path):
    lightning, Net, data = lightning_parts()
    from lowtide.checkpoint_import import import_checkpoint
    from lowtide.integrations.lightning import LowtideCallback

    callback = LowtideCallback(gradients=1, exit_at=None, signals=("SIGUSR1",))
    module = Net(stop_at=6)
    trainer = fit(lightning, module, data, callback, tmp_path)
    assert trainer.global_step == 7 and callback.steps == 7
    got = import_checkpoint(callback.saved)
    assert got["kind"] == "lightning" and torch.equal(got["model"]["layer.weight"], module.layer.weight)


def test_lightning_gradient_findings(tmp_path):
    lightning, Net, data = lightning_parts()
    from lowtide.integrations.lightning import LowtideCallback

    callback = LowtideCallback(gradients=1, exit_at=None, signals=())
    fit(lightning, Net(explode_at=30), data, callback, tmp_path)
    assert [f["code"] for f in callback.gradients.findings] == ["LT503"]
    assert "layer.weight" in callback.gradients.findings[0]["message"]


def test_transformers_trainer(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed: the Trainer needs it")
    from lowtide.integrations.transformers import LowtideCallback

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(4, 1), 0

        def forward(self, x=None, labels=None):
            self.calls += 1
            if self.calls == 5:
                os.kill(os.getpid(), signal.SIGUSR1)
            out = self.layer(x)
            return {"loss": (out.squeeze(-1) - labels).pow(2).mean(), "logits": out}

    rows = [{"x": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(32)]
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), max_steps=20, per_device_train_batch_size=2, logging_steps=2,
                                               report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True)
    callback = LowtideCallback(gradients=1, exit_at=None, signals=("SIGUSR1",))
    trainer = transformers.Trainer(model=Net(), args=arguments, train_dataset=rows, callbacks=[callback])
    trainer.train()
    assert trainer.state.global_step == 5 and callback.gradients.step == 5
    assert os.path.isdir(tmp_path / "checkpoint-5")
    assert any("lowtide/rss" in row for row in trainer.state.log_history)


def test_accelerate_tracker():
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    from lowtide.integrations.accelerate import LowtideTracker

    tracker = LowtideTracker("run")
    accelerator = accelerate.Accelerator(cpu=True, log_with=[tracker])
    accelerator.init_trackers("project", config={"lr": 0.1})
    accelerator.log({"loss": 1.5}, step=3)
    accelerator.end_training()
    ((step, row),) = tracker.rows
    assert step == 3 and row["loss"] == 1.5 and row["lowtide/rss"] > 0 and tracker.config == {"lr": 0.1}
