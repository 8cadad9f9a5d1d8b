"""Leaks by wrong use of real packages: their own code holds what grows, the user's line is named.

Packages are taken from the environment or from the folder LOWTIDE_TEST_PACKAGES; one that is absent is skipped, saying so.
"""
import os
import sys

import pytest

from growing import grown, text, torch

if os.environ.get("LOWTIDE_TEST_PACKAGES"):
    sys.path.append(os.environ["LOWTIDE_TEST_PACKAGES"])


def package(name):
    return pytest.importorskip(name, reason=f"the package {name} is not installed")


def expect(rows, word, source=None):
    assert rows, "nothing grew"
    first = rows[0]
    assert word in text(first), [(row["path"], row["bytes_per_step"]) for row in rows[:4]]
    if source:
        assert first["file"] == __file__, (first["file"], first["line"])
        assert source in open(__file__).read().splitlines()[first["line"] - 1]


def test_torchmetrics_that_is_never_reset():
    metric = package("torchmetrics").CatMetric()
    rows = grown(lambda: metric.update(torch.rand(512)))
    expect(rows, "metric", "metric.update(torch.rand(512))")


def test_ignite_state_that_keeps_outputs():
    engine = package("ignite.engine")
    outputs = []

    def process(_, batch):
        return torch.zeros(512) + batch

    trainer = engine.Engine(process)

    @trainer.on(engine.Events.ITERATION_COMPLETED)
    def keep(running):
        outputs.append(running.state.output)

    expect(grown(lambda: trainer.run([0, 1])), "outputs[*]", "outputs.append(running.state.output)")


def test_einops_results_kept():
    einops = package("einops")
    patches = []
    rows = grown(lambda: patches.append(einops.rearrange(torch.zeros(8, 64), "a b -> b a")))
    expect(rows, "patches[*]", "patches.append(")


def test_matplotlib_figures_never_closed():
    matplotlib = package("matplotlib")
    matplotlib.use("Agg")
    pyplot = package("matplotlib.pyplot")

    def step():
        figure, axes = pyplot.subplots()
        axes.plot([0.0] * 2000)

    expect(grown(step, steps=12, warm_up=4), "figs")


def test_accelerate_keeps_what_was_prepared():
    accelerator = package("accelerate").Accelerator(cpu=True)

    def step():
        accelerator.prepare(torch.nn.Linear(64, 64))

    expect(grown(step), "accelerator._models[*]", "accelerator.prepare(torch.nn.Linear(64, 64))")


def test_pandas_frames_kept():
    pandas = package("pandas")
    frames = []
    rows = grown(lambda: frames.append(pandas.DataFrame({"loss": [0.5] * 4000})))
    expect(rows, "frames[*]", "frames.append(")


def test_tensorboardx_summaries_kept():
    summary = package("tensorboardX.summary")
    summaries = []
    rows = grown(lambda: summaries.append(summary.histogram("grad", torch.rand(4096).numpy(), bins="auto")))
    expect(rows, "summaries[*]", "summaries.append(")


def test_lightning_module_that_collects_outputs():
    lightning = package("pytorch_lightning")

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(16, 16)
            self.step_outputs = []

        def training_step(self, batch, index):
            loss = self.layer(batch).sum()
            self.step_outputs.append(loss)
            return loss

    model = Model()
    rows = grown(lambda: model.training_step(torch.zeros(64, 16), 0))
    expect(rows, "model.step_outputs[*]", "self.step_outputs.append(loss)")
    assert rows[0]["via_autograd"]
