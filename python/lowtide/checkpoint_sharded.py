"""Sharded state (FSDP2, tensor parallel: DTensors) under the same policy, commit and verification.

``torch.distributed.checkpoint`` stores the tensors, each rank its shards, and reshards on load. Around it: the same triggers,
a folder that is renamed into place only when every file is durable and listed with its checksum in the manifest, the last
few kept, and everything verified before the first byte is read back. Its metadata file is a pickle: it is read only after
its checksum was found to be the one in our manifest, and a folder from elsewhere is refused.
"""
import os

from lowtide import _guard
from lowtide import checkpoint_state as states
from lowtide import checkpoint_store as store
from lowtide.checkpoint import Checkpointer, _named
from lowtide.checkpoint_file import read_file, write_file
from lowtide.checkpoint_tree import CheckpointError


class ShardedCheckpointer(Checkpointer):
    """As :class:`Checkpointer`, for models whose parameters are DTensors. All ranks make the same calls. Saves are
    synchronous: the shards are written from where they are."""

    def prepare(self):
        self._prepared = True  # nothing is staged

    def _tensors(self):
        """What torch.distributed.checkpoint stores: models and optimizers by fully qualified names."""
        from torch.distributed.checkpoint.state_dict import get_state_dict

        out = {}
        optimizers = _named(self.parts["optimizer"])
        for name, model in _named(self.parts["model"]).items():
            group = [optimizers[name]] if name in optimizers else []
            model_state, optimizer_state = get_state_dict(model, group)
            out[name or "main"] = {"model": model_state, "optimizer": optimizer_state,
                                   "grads": {n: g for n, g in states.gradients_of(model).items()}}
        return out

    def _rest(self):
        """Each rank's own: RNGs, loader, clip, scheduler ..."""
        everything = {"run": {"step": self.step_number, "epoch": self.epoch, "world": self.world}}
        for part in ("scheduler", "scaler", "gradients"):
            if self.parts[part] is not None:
                everything[part] = {name: item.state_dict() for name, item in _named(self.parts[part]).items()}
        if self.loader is not None:
            everything["loader"] = self.loader.state_dict()
        if self.user is not None:
            everything["user"] = self.user() if callable(self.user) else self.user
        everything["grads"] = {name or "main": sorted(states.gradients_of(model)) for name, model in _named(self.parts["model"]).items()}
        everything["rng"] = states.rng_state()
        return everything

    def save(self, reason="asked", wait=True):
        import time

        self._last_step, self._last_time = self.step_number, time.monotonic()
        self._index += 1
        name = store.folder_name(self.step_number)
        work = os.path.join(self.folder, f".tmp-{self._index:06d}-{name}")
        try:
            self._store(work)
            problem = None
        except CheckpointError:
            raise
        except Exception as error:
            problem = error
        if self._agree(problem is not None):
            if self.rank == 0:
                store.remove(work)
            return self._failed(problem or RuntimeError("another rank could not write"))
        if self.rank == 0:
            try:
                self._commit(work, os.path.join(self.folder, name))
            except OSError as error:
                problem = error
        if self._agree(problem is not None):
            return self._failed(problem or RuntimeError("rank 0 could not commit"))
        self.saves += 1
        self.last_saved, self.last_error = os.path.join(self.folder, name), None
        return True

    def _store(self, work):
        import torch.distributed.checkpoint as dcp

        os.makedirs(work, exist_ok=True)
        write_file(os.path.join(work, store.rank_file(self.rank)), self._rest(), step=self.step_number, **self.options)
        dcp.save(self._tensors(), storage_writer=dcp.FileSystemWriter(os.path.join(work, "shards"), sync_files=True))

    def _commit(self, work, final):
        files = []
        for rank in range(self.world):
            files.append(self._member(work, rank, _Step(self.step_number)))
        shards = os.path.join(work, "shards")
        for name in sorted(os.listdir(shards)):
            crc, size = store.file_crc(os.path.join(shards, name))
            files.append({"name": f"shards/{name}", "bytes": size, "crc32c": crc, "plain": True})
        _guard.sync_folder(shards)
        store.write_manifest(work, {"lowtide": 1, "step": self.step_number, "world": self.world, "files": files})
        if os.path.isdir(final):
            away = os.path.join(self.folder, f".old-{os.path.basename(final)}-{self._index}")
            os.rename(final, away)
        os.rename(work, final)
        _guard.sync_folder(self.folder)
        store.clean(self.folder)
        store.purge(self.folder, self.keep)

    def _read(self, entry):
        """Verifies every file of the checkpoint on every rank that loads it."""
        if not entry.sharded or not os.path.isdir(os.path.join(entry.path, "shards")):
            raise CheckpointError(f"{entry.path}: holds no sharded state\n  help: load it with lowtide.Checkpointer")
        if self.rank == 0:
            entry.verify()
        manifest = entry.manifest()
        rank = min(self.rank, manifest["world"] - 1)  # another number of ranks: shards are laid out anew, RNGs are a rank's own
        state = read_file(entry.file_of(rank))
        state["path"], state["stored_world"] = entry.path, manifest["world"]
        return state, manifest["step"]

    def load_state(self, state, strict=True):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import set_state_dict

        target = self._tensors()
        for name, stored in state["grads"].items():
            model = _named(self.parts["model"])["" if name == "main" else name]
            parameters = dict(states.unwrap(model).named_parameters())
            import torch

            target[name]["grads"] = {n: torch.zeros_like(parameters[n]) for n in stored if n in parameters}
        dcp.load(target, storage_reader=dcp.FileSystemReader(os.path.join(state["path"], "shards")))
        optimizers = _named(self.parts["optimizer"])
        for name, model in _named(self.parts["model"]).items():
            part = target[name or "main"]
            set_state_dict(model, [optimizers[name]] if name in optimizers else [], model_state_dict=part["model"],
                           optim_state_dict=part["optimizer"])
            for parameter_name, parameter in states.unwrap(model).named_parameters():
                gradient = part["grads"].get(parameter_name)
                parameter.grad = gradient.detach() if gradient is not None else None
        for part in ("scheduler", "scaler", "gradients"):
            for name, item in _named(self.parts[part]).items():
                if name in state.get(part, {}):
                    item.load_state_dict(state[part][name])
        if self.loader is not None and "loader" in state:
            self.loader.load_state_dict(state["loader"])
        self.step_number, self.epoch = int(state["run"]["step"]), int(state["run"]["epoch"])
        if state["stored_world"] == self.world:
            states.set_rng_state(state["rng"])
        return []


class _Step:
    def __init__(self, step):
        self.step = step
