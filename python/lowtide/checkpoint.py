"""Checkpoints that survive anything and resume exactly.

    checkpointer = lowtide.Checkpointer("checkpoints", model=model, optimizer=optimizer, scheduler=scheduler,
                                        loader=loader, gradients=gradients)
    resumed = checkpointer.resume()                    # None, or what was loaded
    for batch in checkpointer.loader:
        ...
        checkpointer.step()                            # after the optimizer's step: saves when one is due
    checkpointer.close()

A save copies the state into memory that was set aside at the start (that is the whole stall) and writes from a thread:
past the page cache where possible, synced, renamed into place, older ones removed only then. Nothing is ever unpickled.
A failed save is counted, kept in ``last_error`` and reported as LT701; training goes on.
"""
import contextlib
import gc
import os
import socket
import sys
import threading
import time
import warnings

import torch

from lowtide import checkpoint_state as states
from lowtide import checkpoint_store as store
from lowtide.checkpoint_file import Image, Reader, Staging
from lowtide.checkpoint_loader import PerSample, Resumable
from lowtide.checkpoint_tree import CheckpointError
from lowtide.gradients_findings import Sink, evidence, finding, place

__all__ = ["CheckpointError", "Checkpointer", "PerSample", "Resumable"]


class Resumed:
    """What a load did: ``step``, ``path``, ``skipped`` (a lenient load), ``damaged`` (newer ones passed over), ``user``."""

    def __init__(self, entry, state, skipped, damaged):
        self.step, self.path = entry.step, entry.path
        self.skipped, self.damaged = skipped, damaged
        self.epoch = state["run"].get("epoch", 0)
        self.user = state.get("user")
        self.made_by = state["run"].get("made_by", {})

    def __repr__(self):
        extra = f", {len(self.skipped)} part(s) skipped" if self.skipped else ""
        return f"<resumed at step {self.step} from {self.path}{extra}>"


class Checkpointer:
    """Decides when to save, saves, keeps the last few, and resumes.

    folder      where checkpoints go; one run at a time writes there
    model, optimizer, scheduler, scaler, ema, gradients
                what to save: objects with state_dict() and load_state_dict(), or dicts of such objects by name
    loader      a DataLoader; iterate over ``checkpointer.loader`` so that its place is known
    every_steps, every_seconds, every_epoch
                a save is due as soon as one of them says so; None or False turns one off
    keep        committed checkpoints that stay
    user        a dict (or a function that returns one) saved with the rest
    background  write from a thread; False: save() returns when it is durable
    """

    def __init__(self, folder, *, model, optimizer=None, scheduler=None, scaler=None, ema=None, gradients=None, loader=None,
                 user=None, every_steps=1000, every_seconds=1800.0, every_epoch=True, keep=3, background=True, threads=4,
                 direct=True, sync=True, release_cache=True, timeout=600.0, sink=None):
        if keep < 1:
            raise ValueError("keep must be at least 1")
        self.folder = os.fspath(folder)
        self.parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler, "ema": ema,
                      "gradients": gradients}
        self.loader = loader if loader is None or isinstance(loader, Resumable) else Resumable(loader)
        self.user = user
        self.every_steps, self.every_seconds, self.every_epoch, self.keep = every_steps, every_seconds, every_epoch, keep
        self.background, self.release_cache, self.timeout = background, release_cache, timeout
        self.options = {"threads": threads, "direct": direct, "sync": sync}
        self.sink = sink or Sink()
        self.step_number = self.epoch = 0
        self.saves = self.failed = 0
        self.last_error = self.last_saved = self.last_stall = None
        self._index = 0                    # counts saves the same way on every rank
        self._last_step, self._last_time = 0, time.monotonic()
        self.rank, self.world = _rank_and_world()
        self._thread = None
        self._staging = Staging()
        self._lock = None
        self._prepared = False
        os.makedirs(self.folder, exist_ok=True)
        if self.rank == 0:
            self._lock = store.Lock(self.folder)
            store.clean(self.folder)
        self._barrier()

    # -- when ---------------------------------------------------------------------------------------------------
    def step(self, n=1):
        """After an optimizer step: counts it, and saves when a save is due by steps or time. True when it saved."""
        self.step_number += n
        if not self._prepared:
            self.prepare()
        if self.every_steps and self.step_number - self._last_step >= self.every_steps:
            return self.save(reason="steps", wait=False)
        if self.every_seconds and self._agree(time.monotonic() - self._last_time >= self.every_seconds):
            return self.save(reason="time", wait=False)
        return False

    def end_epoch(self):
        """After an epoch, and its validation if there is one: a good place for a save."""
        self.epoch += 1
        return self.save(reason="epoch", wait=False) if self.every_epoch else False

    def prepare(self):
        """Sets the staging memory aside: now, while there is some. Called by the first step()."""
        self._prepared = True
        with contextlib.suppress(MemoryError):
            need = Image(self.state()).bytes
            optimizers = _named(self.parts["optimizer"])
            if all(not optimizer.state_dict()["state"] for optimizer in optimizers.values()):
                need *= 3  # Adam's moments come with the first step
            self._staging.reserve(int(need * 1.02) + (1 << 20))

    # -- what ---------------------------------------------------------------------------------------------------
    def state(self):
        """The whole state as nested dicts of tensors and numbers; references, not copies."""
        state = {"run": {"step": self.step_number, "epoch": self.epoch, "made_by": _made_by(), "world": self.world}}
        for part, value in self.parts.items():
            if value is not None:
                state[part] = {name: states.unwrap(item).state_dict() if part in ("model", "ema") else item.state_dict()
                               for name, item in _named(value).items()}
        state["grads"] = {name: states.gradients_of(module) for name, module in _named(self.parts["model"]).items()}
        if self.loader is not None:
            state["loader"] = self.loader.state_dict()
        if self.user is not None:
            state["user"] = self.user() if callable(self.user) else self.user
        state["rng"] = states.rng_state()
        return state

    def save(self, reason="asked", wait=None):
        """Saves now. Returns True when the state was captured (and, without a background thread or with wait=True, is
        durable), False when it failed; the error is in ``last_error``. On several ranks all must call it."""
        wait = not self.background if wait is None else wait or not self.background
        self.join()
        started = time.perf_counter()
        self._last_step, self._last_time = self.step_number, time.monotonic()
        self._index += 1
        try:
            if self.release_cache and reason in ("epoch", "memory") and torch.cuda.is_available() and torch.cuda.is_initialized():
                torch.cuda.empty_cache()
            image = Image(self.state(), step=self.step_number, metadata={"lowtide.reason": reason})
            image.fill(self._staging)
        except CheckpointError:
            raise  # the state itself cannot be stored: that is for the user to mend, at the first save
        except Exception as error:
            return self._failed(error)
        self.last_stall = time.perf_counter() - started
        work = threading.Thread(target=self._write, args=(image, self._index), name="lowtide-checkpoint", daemon=True)
        self._thread = work
        work.start()
        if wait:
            self.join()
            return self.last_error is None
        return True

    def join(self):
        """Waits for the save under way."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self):
        """Waits for the save under way and gives the folder free."""
        self.join()
        self._staging.release()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- writing ------------------------------------------------------------------------------------------------
    def _write(self, image, index):
        try:
            if self.world == 1:
                path = os.path.join(self.folder, store.file_name(image.step))
                image.write(self._staging, self.folder, os.path.basename(path), **self.options)
            else:
                path = self._write_shared(image, index)
            if self.rank == 0:
                store.purge(self.folder, self.keep)
            self.saves += 1
            self.last_saved, self.last_error = path, None
        except Exception as error:
            self._failed(error)

    def _write_shared(self, image, index):
        """Every rank its file; rank 0 waits for all of them, writes the manifest and renames the folder into place."""
        final = os.path.join(self.folder, store.folder_name(image.step))
        work = os.path.join(self.folder, f".tmp-{index:06d}-{store.folder_name(image.step)}")
        os.makedirs(work, exist_ok=True)
        image.write(self._staging, work, store.rank_file(self.rank), **self.options)
        if self.rank != 0:
            def committed():
                if not os.path.isdir(work):
                    return True if os.path.isdir(final) else None
                return None
            store.wait_for(committed, self.timeout, "rank 0 to commit the checkpoint")
            return final
        files = [self._member(work, rank, image) for rank in range(self.world)]
        store.write_manifest(work, {"lowtide": 1, "step": image.step, "world": self.world, "files": files})
        if os.path.isdir(final):  # the same step saved again
            away = os.path.join(self.folder, f".old-{os.path.basename(final)}-{index}")
            os.rename(final, away)
            os.rename(work, final)
            store.remove(away)
        else:
            os.rename(work, final)
        from lowtide import _guard

        _guard.sync_folder(self.folder)
        return final

    def _member(self, work, rank, image):
        path = os.path.join(work, store.rank_file(rank))

        def written():
            try:
                with Reader(path) as reader:
                    return reader if reader.step == image.step else None
            except (CheckpointError, OSError):
                return None

        reader = store.wait_for(written, self.timeout, f"rank {rank}'s file of the checkpoint")
        return {"name": store.rank_file(rank), "bytes": reader.bytes, "header_crc": reader.header_crc, "nonce": reader.nonce.hex()}

    def _failed(self, error):
        self.failed += 1
        self.last_error = error
        self.sink.add(finding(
            "LT701", "warning", f"a checkpoint could not be saved at step {self.step_number}: {error} "
            f"({self.failed} failed, {self.saves} saved); training goes on, the older ones are as they were",
            zh=f"第 {self.step_number} 步的检查点保存失败：{error}；训练继续，旧检查点不受影响",
            where=[place(path=self.folder, last_step=self.step_number)],
            evidence=[evidence("failed", self.failed), evidence("saved", self.saves)],
            help="free some space or name another folder; `lowtide checkpoint list` shows what is there",
            help_zh="释放磁盘空间或更换目录", parts=("failed", self.folder)))
        return False

    # -- loading ------------------------------------------------------------------------------------------------
    def resume(self, path=None, *, strict=True):
        """Loads the newest checkpoint that is whole (or `path`) into everything given to the constructor. Returns
        :class:`Resumed`, or None when there is none. Damaged ones are passed over, with a warning that says which."""
        found, damaged = self._newest() if path is None else (self._one(path), [])
        for text in damaged:
            warnings.warn(f"lowtide: passed over a damaged checkpoint: {text}", stacklevel=2)
            self.sink.add(finding("LT702", "warning", f"a damaged checkpoint was passed over: {text}", zh=f"跳过了损坏的检查点：{text}",
                                  where=[place(path=self.folder)], help="look at the disk it lies on; "
                                  "`lowtide checkpoint verify` checks the others", help_zh="检查磁盘；可用 lowtide checkpoint verify 检查其余",
                                  parts=("damaged", text.split(":")[0])))
        if found is None:
            return None
        entry, state = found
        skipped = self.load_state(state, strict=strict)
        if skipped:
            warnings.warn(f"lowtide: {len(skipped)} part(s) of {entry.path} were not loaded:\n{states.describe(skipped)}", stacklevel=2)
            self.sink.add(finding("LT703", "warning", f"{len(skipped)} part(s) of {entry.path} were not loaded: {skipped[0].name} "
                                  f"({skipped[0].reason})" + (" and others" if len(skipped) > 1 else ""),
                                  zh=f"{entry.path} 有 {len(skipped)} 个部分没有加载", where=[place(path=entry.path)],
                                  evidence=[evidence("skipped", len(skipped))], help="they start as they were initialised",
                                  help_zh="这些部分保持初始值", parts=("skipped", entry.path)))
        resumed = Resumed(entry, state, skipped, damaged)
        self._last_step, self._last_time = self.step_number, time.monotonic()
        del state, found
        gc.collect(0)
        return resumed

    def load_state(self, state, strict=True):
        """Puts a state from :meth:`state` back. The RNGs come last: nothing after them draws."""
        skipped = []
        for part, value in self.parts.items():
            if value is None:
                continue
            stored = state.get(part)
            if stored is None:
                if strict and part != "gradients":
                    raise CheckpointError(f"the checkpoint has no {part}\n  help: load with strict=False")
                skipped.append(states.Skipped(part, None, None, "not in the checkpoint"))
                continue
            for name, item in _named(value).items():
                label = part if name == "" else f"{part}.{name}"
                if name not in stored:
                    if strict:
                        raise CheckpointError(f"the checkpoint has no {label}\n  help: load with strict=False")
                    skipped.append(states.Skipped(label, None, None, "not in the checkpoint"))
                elif part in ("model", "ema"):
                    skipped += states.load_module(item, stored[name], strict, label)
                elif part == "optimizer":
                    skipped += states.load_optimizer(item, stored[name], strict, label)
                else:
                    item.load_state_dict(stored[name])
        if not skipped:
            for name, module in _named(self.parts["model"]).items():
                states.set_gradients(module, state.get("grads", {}).get(name, {}))
        if self.loader is not None and "loader" in state:
            self.loader.load_state_dict(state["loader"])
        self.step_number, self.epoch = int(state["run"]["step"]), int(state["run"]["epoch"])
        states.set_rng_state(state["rng"])
        return skipped

    def _one(self, path):
        entry = store.Entry(os.fspath(path), 0)
        state, entry.step = self._read(entry)
        return entry, state

    def _read(self, entry):
        path = entry.file_of(self.rank)
        if entry.sharded:
            manifest = entry.manifest()
            if manifest["world"] != self.world:
                raise CheckpointError(f"{entry.path}: was saved by {manifest['world']} processes, this run has {self.world}\n"
                                      "  help: resume with as many, or save sharded state with lowtide.ShardedCheckpointer")
            store.check_member(path, next(i for i in manifest["files"] if i["name"] == store.rank_file(self.rank)))
        with Reader(path) as reader:
            state = reader.state()
            if not isinstance(state, dict) or not isinstance(state.get("run"), dict) or "rng" not in state:
                raise CheckpointError(f"{path}: is no checkpoint of a training run")
            return state, reader.step

    def _newest(self):
        damaged = []
        for entry in reversed(store.entries(self.folder)):
            try:
                state, _ = self._read(entry)
                text = None
            except (CheckpointError, OSError) as error:
                state, text = None, str(error)
            if not self._agree(text is not None):  # whole on every rank
                return (entry, state), damaged
            damaged.append(text or f"{entry.path}: damaged on another rank")
        return None, damaged

    # -- ranks --------------------------------------------------------------------------------------------------
    def _agree(self, flag):
        """True on all ranks as soon as it is on one."""
        if self.world == 1:
            return flag
        import torch.distributed as dist

        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        word = torch.tensor([int(flag)], device=device)
        dist.all_reduce(word, op=dist.ReduceOp.MAX)
        return bool(word.item())

    def _barrier(self):
        if self.world > 1:
            import torch.distributed as dist

            dist.barrier()


def _rank_and_world():
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def _named(value):
    """{name: object}; one object alone is called "" ."""
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"": value}


def _made_by():
    return {"lowtide": 1, "torch": torch.__version__, "python": sys.version.split()[0], "host": socket.gethostname(),
            "time": time.time()}
