"""Reads what other tools saved: ``torch.save`` and Lightning files, plain safetensors. Nothing is executed: pickles go
through PyTorch's own restricted reader (``weights_only=True``), which refuses everything but tensors and plain data.
"""
import os

import torch

from lowtide.checkpoint_file import Reader
from lowtide.checkpoint_tree import DTYPES, CheckpointError


def import_checkpoint(path):
    """The contents of `path` as a dict with the keys ``model`` (name -> tensor), ``optimizer``, ``scheduler``, ``scaler``
    (state dicts, where they are), ``step``, ``epoch`` and ``kind`` ("lowtide", "safetensors", "torch", "lightning").

    Raises :class:`CheckpointError` when the file is damaged or holds more than data.
    """
    path = os.fspath(path)
    try:
        with open(path, "rb") as file:
            head = file.read(16)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    if len(head) >= 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= os.path.getsize(path):
        return _safetensors(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # UnpicklingError, RuntimeError of the zip reader, EOFError ...
        text = str(error).split("\n")[0]
        raise CheckpointError(f"{path}: is no checkpoint that can be read without running code from it: {text}\n"
                              "  help: load it where you trust it, and save its state_dict() alone") from None
    return _torch(path, content)


def _safetensors(path):
    try:
        with Reader(path) as reader:
            state = reader.state()
        first = lambda part: next(iter(state.get(part, {}).values()), None)
        return {"kind": "lowtide", "model": first("model"), "optimizer": first("optimizer"), "scheduler": first("scheduler"),
                "scaler": first("scaler"), "step": state["run"]["step"], "epoch": state["run"]["epoch"]}
    except CheckpointError as error:
        if "has no seal" not in str(error):
            raise
    return {"kind": "safetensors", "model": _plain(path), "optimizer": None, "scheduler": None, "scaler": None, "step": None,
            "epoch": None}


def _plain(path):
    """A safetensors file of another tool: there are no checksums to verify."""
    import json

    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(length))
            out = {}
            for name, entry in header.items():
                if name == "__metadata__":
                    continue
                begin, end = entry["data_offsets"]
                dtype, shape = DTYPES[entry["dtype"]], [int(n) for n in entry["shape"]]
                count = 1
                for n in shape:
                    count *= n
                if not 0 <= begin <= end <= size - 8 - length or count * torch.empty(0, dtype=dtype).element_size() != end - begin:
                    raise ValueError(f"tensor {name} lies outside the file or has another size than its shape")
                file.seek(8 + length + begin)
                raw = bytearray(file.read(end - begin))
                out[name] = torch.frombuffer(raw, dtype=dtype).reshape(shape) if raw else torch.empty(shape, dtype=dtype)
            return out
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{path}: is no valid safetensors file: {error}") from None


def _torch(path, content):
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: holds a {type(content).__name__}, not a dict")
    out = {"kind": "torch", "optimizer": None, "scheduler": None, "scaler": None, "step": None, "epoch": None}
    if "pytorch-lightning_version" in content:
        first = lambda key: (content.get(key) or [None])[0]
        out.update(kind="lightning", optimizer=first("optimizer_states"), scheduler=first("lr_schedulers"),
                   step=content.get("global_step"), epoch=content.get("epoch"))
    model = content
    for key in ("state_dict", "model_state_dict", "model", "module", "net"):
        if isinstance(content.get(key), dict):
            model = content[key]
            break
    if model is not content and out["kind"] == "torch":
        pick = lambda *keys: next((content[k] for k in keys if k in content), None)
        out.update(optimizer=pick("optimizer_state_dict", "optimizer"), scheduler=pick("scheduler_state_dict", "scheduler", "lr_scheduler"),
                   scaler=pick("scaler_state_dict", "scaler"), step=pick("global_step", "step"), epoch=pick("epoch"))
    out["model"] = {k: v for k, v in model.items() if isinstance(v, torch.Tensor)}
    if not out["model"]:
        raise CheckpointError(f"{path}: there are no tensors of a model in it")
    return out
