"""The distributed set-up of a training script in three calls, each choice with its reason.

    import lowtide.distributed

    job = lowtide.distributed.setup(seed=1)              # process group, device, seeds; also without a launcher
    model = job.wrap(model)                              # to the device, then DistributedDataParallel
    loader = job.loader(dataset, batch_size=32)          # this rank's share, a new order each epoch
    job.explain()                                        # what was chosen and why, printed on rank 0

    for epoch in range(epochs):
        for x, y in loader:                              # set_epoch is called by itself
            ...

Works the same under torchrun, SLURM, MPI and with a plain ``python train.py`` (one rank, no process group). What can be
chosen otherwise is an argument; what was chosen is in ``job.choices``, a list of (choice, reason).
"""
import atexit
import contextlib
import datetime
import os
import random
import re
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from lowtide._distributed_env import master_from_slurm, where_am_i

MOST_WORKERS = 8

current = None  # the set-up of this process


def setup(model=None, dataset=None, batch_size=None, *, device=None, backend=None, seed=0, timeout_minutes=10,
          deterministic=False, loader_options=None, wrap_options=None):
    """Joins the other ranks and returns a :class:`Setup`. With `model` and `dataset` also ``.model`` and ``.train_loader``.

    device           "cuda", "cpu", "xpu", "npu"; None: the best there is
    backend          None: by device
    seed             each rank draws from seed + rank; ``common()`` draws the same on all
    timeout_minutes  after which a collective that others do not reach raises
    Raises RuntimeError (message with the remedy) where the launcher's variables contradict each other.
    """
    global current
    if current is not None and not current.closed:
        raise RuntimeError("lowtide.distributed.setup() was called before in this process: keep what it returned, or close() it first")
    current = Setup(device, backend, seed, timeout_minutes, deterministic)
    if model is not None:
        current.model = current.wrap(model, **(wrap_options or {}))
    if dataset is not None:
        current.train_loader = current.loader(dataset, batch_size=batch_size or 1, **(loader_options or {}))
    return current


class Setup:
    """This process's place among the ranks: rank, world_size, local_rank, local_world_size, device, is_main, choices."""

    def __init__(self, device, backend, seed, timeout_minutes, deterministic):
        self.choices = []
        self.closed = self.made_group = False
        self.model = self.train_loader = None
        place = where_am_i()
        self.rank, self.world_size = place.rank, place.world_size
        self.local_rank, self.local_world_size = place.local_rank, place.local_world_size
        self._chose(f"rank {self.rank} of {self.world_size}, local rank {self.local_rank}", place.reason)
        self.device = self._device(device)
        self._seed(seed, deterministic)
        self._join(backend, timeout_minutes)
        atexit.register(self._at_exit)

    @property
    def is_main(self):
        """Whether this is the rank that prints, logs and saves."""
        return self.rank == 0

    def _chose(self, choice, reason):
        self.choices.append((choice, reason))

    # -- device, seeds, process group -----------------------------------------------------------------------------------
    def _device(self, wanted):
        kind, reason = (str(wanted), "asked for") if wanted is not None else _best_device()
        if ":" in kind:
            device = torch.device(kind)
        elif kind in ("cuda", "xpu", "npu"):
            count = getattr(torch, kind).device_count()
            device = torch.device(kind, self.local_rank % max(count, 1))
            if self.local_world_size > count:
                reason += f"; {self.local_world_size} ranks share {count} device(s) here"
        else:
            device = torch.device(kind)
        module = getattr(torch, device.type, None)
        if device.type not in ("cpu", "mps") and hasattr(module, "set_device"):
            module.set_device(device)
            reason += "; set_device was called before anything else on it"
        self._chose(f"device {device}", reason)
        return device

    def _seed(self, seed, deterministic):
        self.seed = seed
        random.seed(seed + self.rank)
        torch.manual_seed(seed + self.rank)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed((seed + self.rank) % 2**32)
        self._chose(f"seed {seed} + rank", "dropout and augmentation differ between ranks; parameters are made equal by wrap()")
        if deterministic:
            torch.use_deterministic_algorithms(True, warn_only=True)
            self._chose("deterministic algorithms", "asked for; some operations are slower")

    def _join(self, backend, timeout_minutes):
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            self._chose(f"the process group that was there ({distributed.get_backend()})", "init_process_group had been called")
            self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
            return
        if self.world_size == 1:
            self._chose("no process group", "one rank alone: nothing to talk to; the same script scales with torchrun --nproc-per-node N")
            return
        backend, reason = (backend, "asked for") if backend else _backend(self.device, self.local_world_size)
        if "MASTER_ADDR" not in os.environ:
            os.environ.update(master_from_slurm(os.environ))
        os.environ.setdefault("MASTER_PORT", "29500")
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        options = {}
        if self.device.type == "cuda" and "nccl" in backend:
            options["device_id"] = self.device
        timeout = datetime.timedelta(minutes=timeout_minutes)
        try:
            distributed.init_process_group(backend, rank=self.rank, world_size=self.world_size, timeout=timeout, **options)
        except TypeError:  # PyTorch before device_id
            distributed.init_process_group(backend, rank=self.rank, world_size=self.world_size, timeout=timeout)
        self.made_group = True
        self._chose(f"backend {backend}", reason)
        self._chose(f"timeout {timeout_minutes} min", "a rank that does not come raises on the others, and does not hang them for ever")

    # -- model ----------------------------------------------------------------------------------------------------------
    def wrap(self, model, *, sync_batch_norm=None, find_unused_parameters=None, sample=None, **options):
        """`model` on this rank's device and, with several ranks, in DistributedDataParallel. Make the optimizer afterwards.

        sync_batch_norm         True: batch statistics over all ranks (GPU only). None: no
        find_unused_parameters  None: only if `sample` shows that it is needed
        sample                  arguments of one forward (a tensor, a tuple or a dict), to see which parameters take part
        Other keywords go to DistributedDataParallel.
        """
        spread = len({p.device for p in model.parameters() if p.device.type != "cpu"}) > 1
        if spread:
            self._chose("the model stays where it is", "its parts lie on several devices")
        else:
            model = model.to(self.device)
            self._chose(f"model.to({self.device})", "before the wrap and before the optimizer")
        model = self._batch_norm(model, sync_batch_norm)
        if self.world_size == 1:
            self._chose("no DistributedDataParallel", "one rank alone: the model is returned as it is")
            return model
        if not any(p.requires_grad for p in model.parameters()):
            self._chose("no DistributedDataParallel", "no parameter requires a gradient: nothing to average")
            return model
        unused = self._unused(model, find_unused_parameters, sample)
        ids = [self.device.index] if self.device.type in ("cuda", "xpu", "npu") and not spread else None
        self._chose(f"DistributedDataParallel(device_ids={ids}, find_unused_parameters={unused})",
                    "gradients are averaged while backward runs; parameters and buffers start as rank 0's")
        return nn.parallel.DistributedDataParallel(model, device_ids=ids, find_unused_parameters=unused, **options)

    def _batch_norm(self, model, wanted):
        norm = nn.modules.batchnorm
        if not any(isinstance(m, norm._BatchNorm) and not isinstance(m, norm.SyncBatchNorm) for m in model.modules()):
            return model
        if wanted and self.world_size > 1 and self.device.type != "cpu":
            self._chose("SyncBatchNorm", "asked for: batch statistics over all ranks, at the price of a collective per layer")
            return nn.SyncBatchNorm.convert_sync_batchnorm(model)
        self._chose("BatchNorm as it is", "SyncBatchNorm needs a GPU and several ranks" if wanted else
                    "each rank normalises by its own batch and rank 0's statistics are broadcast; with fewer than about 16 samples a "
                    "rank pass sync_batch_norm=True")
        return model

    def _unused(self, model, wanted, sample):
        if wanted is not None:
            self._chose(f"find_unused_parameters={bool(wanted)}", "asked for")
            return bool(wanted)
        if sample is None:
            self._chose("find_unused_parameters=False", "right as long as every parameter takes part in every loss (LT609 tells "
                        "otherwise); pass sample= to have it looked at now")
            return False
        names = unused_parameters(model, sample, self.device)
        flag = torch.tensor([len(names)], device=self.device)
        torch.distributed.all_reduce(flag)  # all ranks must choose alike
        needed = int(flag.item()) > 0
        self._chose(f"find_unused_parameters={needed}", "a forward of the sample left out " + ", ".join(names[:4]) if names else
                    "on another rank a forward of its sample left out some parameters" if needed else
                    "a forward of the sample used every parameter")
        return needed

    def synced(self, model, sync=True):
        """``with job.synced(model, last):`` gradients are averaged only where `sync`: for accumulation, wrapped or not."""
        return contextlib.nullcontext() if sync or not hasattr(model, "no_sync") else model.no_sync()

    # -- data -----------------------------------------------------------------------------------------------------------
    def loader(self, dataset, batch_size, *, shuffle=True, drop_last=None, num_workers=None, pin_memory=None, **options):
        """A DataLoader of this rank's share (`batch_size` is per rank), in a new order each epoch without a call of yours.

        ``loader.epoch`` is the epoch that the next loop over it begins: set it when you resume.
        """
        workers, why = (num_workers, "asked for") if num_workers is not None else self._workers(dataset)
        self._chose(f"num_workers={workers}", why)
        pin = self.device.type == "cuda" if pin_memory is None else pin_memory
        self._chose(f"pin_memory={pin}", "copies to the GPU run beside it: use .to(device, non_blocking=True)" if pin else
                    "batches stay in ordinary memory")
        options.update(batch_size=batch_size, num_workers=workers, pin_memory=pin)
        if workers:
            options.setdefault("persistent_workers", True)
        if isinstance(dataset, IterableDataset):
            self._chose("no sampler", "an IterableDataset chooses its own samples: let it skip by job.rank and job.world_size")
            return EpochLoader(dataset, drop_last=bool(drop_last), **options)
        if drop_last is None:
            drop_last = bool(shuffle and len(dataset) >= self.world_size * batch_size)
            self._chose(f"drop_last={drop_last}", "every rank has the same number of whole batches, so that none waits for another" if drop_last
                        else "few samples, or an evaluation: all of them count; the last ones are repeated so that ranks stay equal"
                        if self.world_size > 1 else "few samples, or an evaluation: all of them count")
        options.setdefault("generator", self.generator())
        if self.world_size == 1:
            self._chose("no DistributedSampler", "one rank reads all samples" + (", in a new order each epoch" if shuffle else ""))
            return EpochLoader(dataset, shuffle=shuffle, drop_last=drop_last, **options)
        sampler = DistributedSampler(dataset, self.world_size, self.rank, shuffle=shuffle, seed=self.seed, drop_last=drop_last)
        self._chose("DistributedSampler, set_epoch called at the start of each epoch", "ranks read different samples, in a new order each epoch"
                    if shuffle else "ranks read different samples, in order")
        return EpochLoader(dataset, sampler=sampler, drop_last=drop_last, **options)

    def _workers(self, dataset):
        if isinstance(dataset, TensorDataset):
            return 0, "the samples are tensors in memory: a worker would only copy them"
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        share = max(0, min(MOST_WORKERS, cores // max(self.local_world_size, 1) - 1))
        return share, f"{cores} cores for {self.local_world_size} rank(s) on this machine, one kept for the training itself"

    # -- randomness -------------------------------------------------------------------------------------------------------
    def generator(self, common=False):
        """A torch.Generator on the CPU: this rank's own, or the same on all ranks."""
        return torch.Generator().manual_seed(self.seed + (0 if common else self.rank))

    @contextlib.contextmanager
    def common(self, salt=0):
        """Inside, PyTorch's CPU generator draws the same on all ranks; afterwards it goes on as before."""
        state = torch.random.get_rng_state()
        torch.random.default_generator.manual_seed(self.seed + 1_000_003 * (salt + 1))
        try:
            yield
        finally:
            torch.random.set_rng_state(state)

    # -- telling, leaving ---------------------------------------------------------------------------------------------------
    def explain(self, file=None):
        """Prints every choice with its reason on rank 0; returns the text on all ranks."""
        text = "".join(f"{choice}: {reason}\n" for choice, reason in self.choices)
        if self.is_main:
            print("distributed set-up\n" + re.sub(r"(?m)^(?=.)", "  ", text), end="", file=file or sys.stdout, flush=True)
        return text

    def close(self):
        """Leaves the process group; called at exit, too. Never raises."""
        if self.closed:
            return
        self.closed = True
        try:
            if self.made_group and torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
        except Exception:
            pass

    def _at_exit(self):
        try:
            if self.made_group:
                from lowtide import _ranks_exit

                _ranks_exit.let_go()
        except Exception:
            pass
        self.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
        return False


class EpochLoader(DataLoader):
    """A DataLoader that tells its sampler (or its dataset) the number of the epoch whenever a loop over it begins."""

    def __init__(self, dataset, **options):
        super().__init__(dataset, **options)
        self.epoch = 0

    def __iter__(self):
        for owner in (self.sampler, self.batch_sampler, self.dataset):
            if callable(getattr(owner, "set_epoch", None)):
                owner.set_epoch(self.epoch)
                break
        self.epoch += 1
        return super().__iter__()


def _best_device():
    if torch.cuda.is_available():
        return "cuda", "a GPU is available"
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        return "xpu", "an Intel GPU is available"
    npu = getattr(torch, "npu", None)
    if npu is not None and npu.is_available():
        return "npu", "an Ascend NPU is available (torch_npu)"
    return "cpu", "no accelerator is available to this PyTorch"


def _backend(device, local_world_size):
    """(backend, reason) for a device."""
    distributed = torch.distributed
    if device.type == "cuda":
        if not distributed.is_nccl_available():
            return "gloo", "this PyTorch was built without NCCL: gloo copies through the CPU and is slow"
        if local_world_size > torch.cuda.device_count():
            return "gloo", "several ranks share a GPU, which NCCL refuses"
        return "cpu:gloo,cuda:nccl", "NCCL is the fastest between NVIDIA GPUs; gloo carries CPU tensors"
    if device.type == "xpu":
        name = "xccl" if getattr(distributed, "is_xccl_available", lambda: False)() else "ccl"
        return name, "oneCCL for Intel GPUs (a guess: not tried by lowtide)"
    if device.type == "npu":
        return "hccl", "HCCL for Ascend NPUs (a guess: not tried by lowtide)"
    return "gloo", "gloo is the one for CPU tensors"


def unused_parameters(model, sample, device):
    """Names of the parameters that require a gradient and that a forward of `sample` does not use. The model's buffers and
    the random state are put back."""
    from lowtide.gradients_origin import graph

    def moved(value):
        if isinstance(value, torch.Tensor):
            return value.to(device)
        if isinstance(value, (list, tuple)):
            return type(value)(moved(v) for v in value)
        return {k: moved(v) for k, v in value.items()} if isinstance(value, dict) else value

    buffers = {name: b.detach().clone() for name, b in model.named_buffers()}
    state, sample = torch.random.get_rng_state(), moved(sample)
    try:
        with torch.enable_grad():
            output = model(**sample) if isinstance(sample, dict) else model(*sample) if isinstance(sample, tuple) else model(sample)
        used = set()
        for tensor in _tensors(output):
            if tensor.requires_grad and tensor.grad_fn is not None:
                used |= set(graph(tensor)[1])
    finally:
        torch.random.set_rng_state(state)
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in buffers:
                    buffer.copy_(buffers[name])
    return [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in used]


def _tensors(value, depth=4):
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, (list, tuple, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _tensors(inner, depth - 1)
    elif depth and hasattr(value, "__dict__"):
        for inner in vars(value).values():
            yield from _tensors(inner, depth - 1)
