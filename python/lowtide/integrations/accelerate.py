"""Accelerate: ``Accelerator(log_with=[LowtideTracker("run")])``: each ``accelerator.log`` also records memory figures,
and marks a step of ``lowtide run``."""
from accelerate.tracking import GeneralTracker, on_main_process

import lowtide
from lowtide.monitor import figures


class LowtideTracker(GeneralTracker):
    """Keeps the last `keep` rows in ``rows`` and hands them to a sink with ``log(dict, step=)`` or ``add_scalar``."""

    name = "lowtide"
    requires_logging_directory = False

    def __init__(self, run_name="run", sink=None, keep=1000):
        super().__init__()
        self.run_name, self.sink, self.keep = run_name, sink, keep
        self.rows = []
        self.config = {}

    @property
    def tracker(self):
        return self.rows

    @on_main_process
    def store_init_configuration(self, values):
        self.config = dict(values)

    @on_main_process
    def log(self, values, step=None, **kwargs):
        lowtide.step()
        row = {**values, **{f"lowtide/{name.replace(' ', '_')}": value for name, value in figures().items()}}
        self.rows.append((step, row))
        del self.rows[: -self.keep]
        if self.sink is not None:
            from lowtide.integrations.sinks import send

            send(self.sink, row, step)

    @on_main_process
    def finish(self):
        pass
