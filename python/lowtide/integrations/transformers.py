"""Hugging Face Trainer: ``Trainer(..., callbacks=[LowtideCallback()])``.

The Trainer owns the loop, the checkpoints and the clip; this adds figures, gradient findings, the step marks of
``lowtide run``, and an end in order: the Trainer saves and stops after the step.
"""
from transformers import TrainerCallback

import lowtide
from lowtide.exit import GracefulExit
from lowtide.gradients import Gradients
from lowtide.monitor import figures


class LowtideCallback(TrainerCallback):
    """gradients   check the gradients every so many optimizer steps; 0: never
    exit_at        fraction of the tightest memory limit at which to leave; None: only on signals
    """

    def __init__(self, gradients=10, exit_at=0.85, signals=("SIGTERM", "SIGUSR1")):
        self.every, self.exit_at, self.signals = gradients, exit_at, signals
        self.gradients = self.leave = None

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.gradients = Gradients(model, clip=None) if self.every and model is not None else None
        self.leave = GracefulExit(memory=self.exit_at, signals=self.signals)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        if self.gradients is not None and (state.global_step + 1) % self.every == 0:
            self.gradients.check()

    def on_step_end(self, args, state, control, **kwargs):
        lowtide.step()
        if self.leave.should_stop():
            control.should_save = control.should_training_stop = True

    def on_log(self, args, state, control, logs=None, **kwargs):
        extra = {f"lowtide/{name.replace(' ', '_')}": value for name, value in figures().items()}
        if logs is not None:
            logs.update(extra)  # for the reporters that come after us
        if state.log_history:
            state.log_history[-1].update(extra)

    def on_train_end(self, args, state, control, **kwargs):
        if self.leave is not None:
            self.leave.close()

    @property
    def findings(self):
        """Gradient findings so far, as in findings.json."""
        return self.gradients.findings if self.gradients is not None else []
