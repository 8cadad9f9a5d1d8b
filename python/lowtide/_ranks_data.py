"""What a rank reads: its samplers, the order of its epochs, short hashes of the rows that its wrapped model is given.

One rank alone can tell that the order repeats (LT601). That two ranks read the same rows (LT602), overlap (LT604), that
their samplers disagree (LT603) or their numbers of batches differ (LT605) is told by the outside from the facts.
"""
import sys
import weakref

from lowtide import _ranks, _ranks_hash, _track
from lowtide.gradients_findings import evidence, finding, place

FIRST_LOOKS = 6      # forwards looked at one by one
MOST_LOOKS = 40
MOST_EPOCHS = 24     # whose loader is written down


class Loader:
    """One DataLoader that training steps were made with."""

    def __init__(self, number):
        self.number, self.epochs, self.order, self.repeats, self.place = number, 0, None, 0, (None, None)
        self.first_rows, self.same_rows = None, 0


def given(module, args, kwargs):
    """Hook of a wrapped model while a look is due. A function of this module, so that a model saved meanwhile can be pickled."""
    watch = _ranks.watch
    if watch is not None:
        watch.call(watch.parts[0], "look", module, (*args, *kwargs.values()), True)


class Data:
    def __init__(self, watch, wrapped):
        self.watch, self.wrapped, self.alive, self.failure = watch, wrapped, True, None
        self.loaders = weakref.WeakKeyDictionary()
        self.begun = None         # (weak reference to the loader, place) of an epoch that has made no step yet
        self.current = None       # Loader
        self.looks = self.forwards = 0
        self.handle = None
        self.global_handle = None
        self.first_of_epoch = False

    def install(self):
        from torch.utils.data import DataLoader

        original = DataLoader.__iter__
        DataLoader.__iter__ = _track.Marked(original, lambda loader, *args: self.watch.call(self, "epoch_begins", loader), None)
        self.wrapped.on_wrap.append(self.look_at)

    # -- epochs ---------------------------------------------------------------------------------------------------
    def epoch_begins(self, loader):
        if not self.watch.torch.is_grad_enabled():
            return
        from lowtide.gradients_names import user_place

        file, line, _ = user_place(sys._getframe(2))
        self.begun = (weakref.ref(loader), (file, line))
        self.first_of_epoch = self.watch.begun = True
        self._arm()

    def before_step(self, optimizer, step):
        begun, self.begun = self.begun, None
        loader = begun[0]() if begun is not None else None
        if loader is not None:
            self._trained(loader, begun[1], step)
        if self.looks < MOST_LOOKS and step & (step - 1) == 0:
            self._arm()
        if step == 1 and not self.wrapped.models and self.global_handle is None:
            self._look_at_any_module()
        elif self.global_handle is not None and (step > 12 or self.wrapped.models):
            self.global_handle.remove()
            self.global_handle = None

    def _trained(self, loader, where, step):
        """The first step of an epoch."""
        known = self.loaders.get(loader)
        if known is None:
            known = self.loaders[loader] = Loader(len(self.loaders))
        self.current = known
        known.epochs += 1
        known.place = where
        sampler = _sampler(loader)
        if known.epochs <= MOST_EPOCHS:
            self.watch.facts.write("loader", step=step, loader=known.number, epoch=known.epochs, file=where[0], line=where[1],
                                   **describe(loader, sampler))
        self._order(known, sampler, where)

    def _order(self, known, sampler, where):
        from torch.utils.data.distributed import DistributedSampler

        if not isinstance(sampler, DistributedSampler) or type(sampler).__iter__ is not DistributedSampler.__iter__:
            return
        order = (sampler.epoch, sampler.seed) if sampler.shuffle else None
        before, known.order = known.order, order
        if order is None or order != before:
            return
        known.repeats += 1
        self.watch.add(repeated(known, where, "DistributedSampler.set_epoch() is not called",
                                f"sampler.epoch was {sampler.epoch} each time", sampler.epoch))

    # -- looks at what the model is given ---------------------------------------------------------------------------
    def look_at(self, model, ddp):
        if self.handle is None:
            self.handle = ddp.register_forward_pre_hook(given, with_kwargs=True)

    def _arm(self):
        """A look at the next forward."""
        ddp = self.wrapped.first()
        if self.handle is None and ddp is not None and self.looks < MOST_LOOKS:
            self.handle = ddp.register_forward_pre_hook(given, with_kwargs=True)

    def look(self, module, values, wrapped):
        if not self.watch.torch.is_grad_enabled() or not module.training:
            return
        self.looks += 1
        tensor = _ranks_hash.biggest(self.watch.torch, values)
        step = self.watch.step()
        if tensor is not None:
            rows = _ranks_hash.of_rows(self.watch.torch, tensor)
            self.watch.facts.write("data", look=self.looks, step=step, wrapped=wrapped, batch=int(tensor.shape[0]), rows=rows,
                                   first=self.first_of_epoch)
            if self.first_of_epoch:
                self._same_first_rows(rows)
        self.first_of_epoch = False
        if self.looks >= FIRST_LOOKS and self.handle is not None:
            self.handle.remove()
            self.handle = None

    def _look_at_any_module(self):
        """No wrapped model: the outermost module's calls of a few steps, in case gradients are averaged by hand."""
        hooks = self.watch.torch.nn.modules.module
        seen = [0]

        def called(module, args):
            step = self.watch.step()
            if step > seen[0] and args:
                seen[0] = step
                self.watch.call(self, "look", module, args, False)

        self.global_handle = hooks.register_module_forward_pre_hook(called)

    def _same_first_rows(self, rows):
        """Samplers of other kinds that have a set_epoch: the epoch's first batch tells whether the order is new."""
        begun = self.begun
        loader = begun[0]() if begun is not None else None
        known = self.loaders.get(loader) if loader is not None else None
        if loader is None:
            return
        if known is None:
            known = self.loaders[loader] = Loader(len(self.loaders))
        before, known.first_rows = known.first_rows, rows
        known.same_rows = known.same_rows + 1 if rows == before and len(set(rows)) > 1 else 0
        if known.same_rows < 2 or known.repeats:
            return
        sampler = _sampler(loader)
        owner = next((o for o in (sampler, loader.batch_sampler, loader.dataset) if callable(getattr(o, "set_epoch", None))), None)
        if owner is None or getattr(owner, "shuffle", True) is False:
            return
        self.watch.add(repeated(known, begun[1], f"{type(owner).__name__}.set_epoch() is not called",
                                "each epoch began with the same batch", getattr(owner, "epoch", None), known.same_rows))

    def end(self):
        pass


def repeated(known, where, what, why, epoch, times=None):
    times = known.repeats if times is None else times
    return finding(
        "LT601", "warning",
        f"{what}: {times + 1} epochs in a row had the same order and the same split between the ranks ({why}), so "
        "shuffle=True shuffles nothing after the first one",
        zh=f"没有调用 set_epoch()：连续 {times + 1} 个 epoch 的样本顺序与各 rank 的划分完全相同",
        where=[place(*where, path="sampler.epoch")],
        evidence=[evidence("epochs_repeated", times), evidence("sampler_epoch", epoch if isinstance(epoch, (int, float)) else 0)],
        help="call loader.sampler.set_epoch(epoch) as the first line of the epoch loop; lowtide.distributed's loader does it "
             "by itself",
        help_zh="在 epoch 循环的第一行调用 loader.sampler.set_epoch(epoch)",
        parts=("set_epoch", where[0], where[1]))


def _sampler(loader):
    batches = getattr(loader, "batch_sampler", None)
    return getattr(batches, "sampler", None) or getattr(loader, "sampler", None)


def _length(thing):
    try:
        return len(thing)
    except Exception:
        return None


def describe(loader, sampler):
    """What the outside compares between ranks. Lengths are None where there are none."""
    from torch.utils.data import IterableDataset
    from torch.utils.data.distributed import DistributedSampler

    iterable = isinstance(loader.dataset, IterableDataset)
    out = {"sampler": type(sampler).__name__, "dataset": type(loader.dataset).__name__, "batch_size": loader.batch_size,
           "drop_last": bool(loader.drop_last), "iterable": iterable, "batches": None if iterable else _length(loader),
           "samples": None if iterable else _length(loader.dataset), "distributed": isinstance(sampler, DistributedSampler),
           "drawn": None if iterable else _length(sampler)}
    if out["distributed"]:
        out.update(replicas=sampler.num_replicas, share=sampler.rank, shuffle=bool(sampler.shuffle), seed=sampler.seed,
                   sampler_epoch=sampler.epoch)
    return out
