"""lowtide tells whether a PyTorch training run will live, what holds its memory, and what to change.

    lowtide run train.py            records and judges a script, which need not know of it
    lowtide.step()                  in the script: this is where a step ends (otherwise found by itself)
    with lowtide.phase("validation"):   in the script: this part is no training step

Without ``lowtide run`` both do nothing. The other names are imported when they are first asked for.
"""
import importlib
import sys

__all__ = ["phase", "step"]

_LATER = {  # public name -> submodule that has it
    "snapshot": "_snapshot",
    "LeakError": "_why", "holders": "_why", "why": "_why",
    "Gradients": "gradients",
    "plan": "_plan",
    "Checkpointer": "checkpoint", "CheckpointError": "checkpoint", "PerSample": "checkpoint", "Resumable": "checkpoint",
    "ShardedCheckpointer": "checkpoint_sharded", "import_checkpoint": "checkpoint_import",
    "GracefulExit": "exit", "Monitor": "monitor", "keep": "monitor",
}


def step():
    """Marks the end of a training step; overrides what lowtide found by itself. Nothing without ``lowtide run``."""
    marks = sys.modules.get("lowtide._marks")
    if marks is not None:
        marks.user_step()


class phase:
    """``with lowtide.phase("validation"):``: what is made inside is not a training step's.

    Names: "validation", "checkpoint", "step"; any other is reported as it is, under "other". Blocks may be nested.
    """

    _NUMBERS = {"step": 0, "train": 0, "validation": 1, "checkpoint": 2}
    _MARKS = {"validation": 2, "checkpoint": 3}

    def __init__(self, name):
        self.name = str(name)

    def __enter__(self):
        self._track = getattr(sys.modules.get("lowtide._bootstrap"), "track", None)
        if self._track is not None:
            self._before = self._track.phase(self._NUMBERS.get(self.name, 3))
            self._track.mark(self._MARKS.get(self.name, 4), 1, 0, None, self.name)
        return self

    def __exit__(self, *exception):
        if self._track is not None:
            self._track.phase(self._before)
            self._track.mark(self._MARKS.get(self.name, 4), 2, 0, None, self.name)
        return False


def __getattr__(name):
    if name == "distributed":
        return importlib.import_module("lowtide.distributed")
    if name in _LATER:
        return getattr(importlib.import_module("lowtide." + _LATER[name]), name)
    raise AttributeError(f"module 'lowtide' has no attribute {name!r}")
