"""Lightning: ``Trainer(callbacks=[LowtideCallback()])``.

Lightning owns the loop, the checkpoints and the clip; this adds the figures, the gradient findings, the step marks of
``lowtide run``, and an end in order (SIGTERM, memory): the trainer stops after the batch, having saved.
"""
import os

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

import lowtide
from lowtide.exit import GracefulExit
from lowtide.gradients import Gradients
from lowtide.monitor import Monitor


class LowtideCallback(Callback):
    """gradients   check the gradients every so many optimizer steps; 0: never
    log_every      a line of figures every so many steps
    exit_at        fraction of the tightest memory limit at which to leave; None: only on signals
    """

    def __init__(self, gradients=10, log_every=100, exit_at=0.85, signals=("SIGTERM", "SIGUSR1")):
        self.every, self.log_every, self.exit_at, self.signals = gradients, log_every, exit_at, signals
        self.gradients = self.monitor = self.leave = None
        self.steps = 0
        self.saved = None

    def on_fit_start(self, trainer, pl_module):
        self.gradients = Gradients(pl_module, clip=None) if self.every else None
        self.monitor = Monitor(log_every=self.log_every, gradients=False, leave=False)
        self.leave = GracefulExit(memory=self.exit_at, signals=self.signals)

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.steps += 1
        if self.gradients is not None and self.steps % self.every == 0:
            for item in self.gradients.check().findings:
                self.monitor._warn(f"{item['code']} {item['message']}")

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.monitor.end_step()
        if not trainer.should_stop and self.leave.should_stop():
            folder = trainer.default_root_dir
            self.saved = os.path.join(folder, f"lowtide-exit-step-{trainer.global_step}.ckpt")
            trainer.save_checkpoint(self.saved)
            trainer.should_stop = True

    def on_validation_start(self, trainer, pl_module):
        self._phase = lowtide.phase("validation")
        self._phase.__enter__()

    def on_validation_end(self, trainer, pl_module):
        self._phase.__exit__(None, None, None)

    def teardown(self, trainer, pl_module, stage):
        if self.leave is not None:
            self.leave.close()
            self.monitor.close()

    def state_dict(self):
        return {"gradients": self.gradients.state_dict() if self.gradients is not None else None, "steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]
