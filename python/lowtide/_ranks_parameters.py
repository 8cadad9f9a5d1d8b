"""Short hashes of parameters at steps that are the same on all ranks: after a step all copies must be equal.

Of a wrapped model its parameters, and its batch statistics where the wrapper does not broadcast them. Without a wrapper
those of the optimizer, so that a run that averages nothing shows. Shards of a distributed tensor are left alone.
"""
from lowtide import _ranks_hash

ALL = 16     # parameters hashed at every look; of larger models ...
SOME = 8     # ... this many, other ones each time


def due(step):
    return step <= 4 or step & (step - 1) == 0 or (step % 64 == 0 if step <= 1024 else step % 512 == 0)


class Parameters:
    def __init__(self, watch, wrapped):
        self.watch, self.wrapped, self.alive, self.failure = watch, wrapped, True, None
        self.done = 0     # the step looked at last
        self.looks = 0

    def install(self):
        pass

    def before_step(self, optimizer, step):
        if step == self.done or not due(step):
            return
        self.done = step
        self.looks += 1
        torch, model = self.watch.torch, self.wrapped.first_model()
        if model is not None:
            named = [(n, p) for n, p in model.named() if p is not None]
        else:
            named = [(f"parameter {i}", p) for i, p in enumerate(p for g in optimizer.param_groups for p in g["params"])]
        if not named or any(not _ranks_hash.plain(torch, p) and p.numel() for _, p in named) or _sharded(optimizer):
            self.alive = model is not None  # shards: nothing to compare
            return
        named = [(n, p) for n, p in named if p.numel()]
        shapes = hash(tuple(tuple(p.shape) for _, p in named)) & 0xFFFFFFFF
        if len(named) > ALL:
            first = (self.looks - 1) * SOME
            named = [named[(first + i) % len(named)] for i in range(SOME)]
        items = [[name, *_ranks_hash.of_tensor(torch, p)] for name, p in named]
        buffers = [[name, *_ranks_hash.of_tensor(torch, b)] for name, b in model.statistics()] if model is not None else []
        self.watch.facts.write("parameters", step=step, wrapped=model is not None, items=items, buffers=buffers, shapes=shapes,
                               collectives=sum(self.watch.counts.values()))

    def end(self):
        pass


def _sharded(optimizer):
    name = type(optimizer).__name__
    return name in ("ZeroRedundancyOptimizer", "DeepSpeedZeroOptimizer") or any(
        type(p).__name__ in ("FlatParameter", "DTensor") or getattr(p, "_is_flat_param", False)
        for g in optimizer.param_groups for p in g["params"][:2])
