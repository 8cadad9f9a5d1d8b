"""State as JSON and tensors, exactly and without pickle.

``encode(state)`` turns nested dicts, lists, tuples, numbers, strings, bytes, tensors and NumPy arrays into a JSON value in
which ``{"$t": name}`` stands for a tensor; ``decode`` is its inverse. What has no exact form here is refused with the path
to it; nothing is ever guessed, and nothing that is read is ever executed.
"""
import base64
import collections
import math

import torch

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool, "C64": torch.complex64,
}
for _name, _attribute in (("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2"), ("U16", "uint16"), ("U32", "uint32"),
                          ("U64", "uint64")):
    if hasattr(torch, _attribute):
        DTYPES[_name] = getattr(torch, _attribute)
NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_DEPTH = 200


class CheckpointError(Exception):
    """A checkpoint cannot be written, read or applied; the text says why, where, and what to do."""


def _numpy():
    import sys

    return sys.modules.get("numpy")


class Encoder:
    """Collects the tensors of a state under unique names. Equal views of one memory are stored once and stay shared."""

    def __init__(self):
        self.tensors = {}   # name -> tensor, dense, as stored
        self._seen = {}

    def encode(self, value, path="state", depth=0):
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if depth > MAX_DEPTH:
            raise CheckpointError(f"cannot store {path}: it is nested more than {MAX_DEPTH} deep (does it contain itself?)")
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        encoder = _ENCODERS.get(kind)
        if encoder is not None:
            return encoder(self, value, path, depth + 1)
        numpy = _numpy()
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._array(value, path, numpy)
        if isinstance(value, dict) and kind.__module__ in ("collections",):
            return _dict(self, dict(value), path, depth + 1)
        for plain in (str, int, float):  # versions, IntEnum: the value counts
            if isinstance(value, plain):
                return self.encode(plain.__new__(plain, value), path, depth)
        raise CheckpointError(
            f"cannot store {path}: objects of type {kind.__module__}.{kind.__qualname__} have no exact form in a checkpoint; "
            "give its state as tensors, numbers, strings, lists and dicts (its state_dict(), for example)")

    def _tensor(self, tensor, path):
        if hasattr(tensor, "to_local") and hasattr(tensor, "placements"):
            raise CheckpointError(f"cannot store {path} in a plain checkpoint: it is a DTensor; use Checkpointer(sharded=True)")
        flags = {}
        if type(tensor) is torch.nn.Parameter:
            flags["$parameter"] = tensor.requires_grad
        elif tensor.requires_grad and tensor.is_leaf:
            flags["$grad"] = True
        tensor = tensor.detach()
        if tensor.layout is torch.sparse_coo:
            tensor = tensor.coalesce()
            return {"$sparse": [self._tensor(tensor.indices(), path + ".indices"), self._tensor(tensor.values(), path + ".values"),
                                list(tensor.shape)], **flags}
        if tensor.dtype is torch.complex128:
            return {"$complex128": self._tensor(torch.view_as_real(tensor.resolve_conj()), path), **flags}
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.dtype not in NAMES:
            raise CheckpointError(f"cannot store {path}: a tensor of type {tensor.dtype}, layout {tensor.layout}")
        key = None
        if tensor.numel() and tensor.device.type != "meta":
            key = (str(tensor.device), tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
            if key in self._seen:
                return {"$t": self._seen[key], **flags}
        name = path.removeprefix("state.")
        while name in self.tensors or name in ("__metadata__", "lowtide.seal"):
            name += "'"
        self.tensors[name] = tensor
        if key is not None:
            self._seen[key] = name
        return {"$t": name, **flags}

    def _array(self, value, path, numpy):
        array = numpy.asarray(value)
        if array.dtype.hasobject:
            raise CheckpointError(f"cannot store {path}: a NumPy array of Python objects")
        raw = torch.frombuffer(bytearray(array.tobytes()) or bytearray(1), dtype=torch.uint8)[: array.nbytes].clone()
        name = path.removeprefix("state.")
        while name in self.tensors:
            name += "'"
        self.tensors[name] = raw
        return {"$scalar" if isinstance(value, numpy.generic) else "$array": [name, array.dtype.str, list(array.shape)]}


def _dict(encoder, value, path, depth):
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: encoder.encode(item, f"{path}.{key}" if key else path, depth) for key, item in value.items()}
    return {"$dict": _pairs(encoder, value, path, depth)}


def _pairs(encoder, value, path, depth):
    pairs = []
    for key, item in value.items():
        if not isinstance(key, (str, int, float, bool, tuple, type(None))):
            raise CheckpointError(f"cannot store {path}: a key of type {type(key).__name__}")
        label = key if isinstance(key, str) else repr(key)
        pairs.append([encoder.encode(key, f"{path} key", depth), encoder.encode(item, f"{path}.{label}", depth)])
    return pairs


def _items(encoder, value, path, depth):
    return [encoder.encode(item, f"{path}.{i}", depth) for i, item in enumerate(value)]


def _ordered(encoder, value, path, depth):
    out = {"$ordered": _pairs(encoder, value, path, depth)}
    metadata = getattr(value, "_metadata", None)  # what modules' state dicts carry: versions by module
    if isinstance(metadata, dict):
        out["$metadata"] = _dict(encoder, dict(metadata), path + "._metadata", depth)
    return out


_ENCODERS = {
    list: _items,
    tuple: lambda e, v, p, d: {"$tuple": _items(e, v, p, d)},
    dict: _dict,
    collections.OrderedDict: _ordered,
    torch.Size: lambda e, v, p, d: {"$size": list(v)},
    set: lambda e, v, p, d: {"$set": _items(e, sorted(v, key=repr), p, d)},
    frozenset: lambda e, v, p, d: {"$frozenset": _items(e, sorted(v, key=repr), p, d)},
    bytes: lambda e, v, p, d: {"$bytes": base64.b64encode(v).decode()},
    bytearray: lambda e, v, p, d: {"$bytearray": base64.b64encode(v).decode()},
    complex: lambda e, v, p, d: {"$complex": [repr(v.real), repr(v.imag)]},
    torch.dtype: lambda e, v, p, d: {"$dtype": str(v).removeprefix("torch.")},
    torch.device: lambda e, v, p, d: {"$device": str(v)},
    range: lambda e, v, p, d: {"$range": [v.start, v.stop, v.step]},
    collections.deque: lambda e, v, p, d: {"$deque": [_items(e, v, p, d), v.maxlen]},
    collections.Counter: lambda e, v, p, d: {"$counter": _pairs(e, v, p, d)},
}


class Decoder:
    """``tensor_of(name)`` gives each tensor, the same object for the same name."""

    def __init__(self, tensor_of):
        self.tensor_of = tensor_of

    def decode(self, value, path="state", depth=0):
        if depth > MAX_DEPTH + 8:
            raise CheckpointError(f"{path} is nested too deeply")
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is list:
            return [self.decode(item, f"{path}.{i}", depth + 1) for i, item in enumerate(value)]
        if type(value) is not dict:
            raise CheckpointError(f"{path} is malformed")
        tag = next((key for key in value if key.startswith("$") and key not in ("$parameter", "$grad", "$metadata")), None)
        if tag is None:
            return {key: self.decode(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
        decoder = _DECODERS.get(tag)
        if decoder is None:
            raise CheckpointError(f"{path} has the unknown form {tag}: written by a newer lowtide?")
        try:
            out = decoder(self, value[tag], path, depth + 1)
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(f"{path} is malformed: {error}") from None
        if "$parameter" in value:
            out = torch.nn.Parameter(out, requires_grad=bool(value["$parameter"]))
        elif value.get("$grad"):
            out = out.requires_grad_()
        if isinstance(value.get("$metadata"), dict) and isinstance(out, dict):
            out._metadata = collections.OrderedDict(self.decode(value["$metadata"], path, depth + 1))
        return out

    def pairs(self, value, path, depth):
        return [(self.decode(key, path, depth), self.decode(item, f"{path}.{key}", depth)) for key, item in value]


def _numpy_array(decoder, value):
    import numpy

    name, dtype, shape = value
    dtype = numpy.dtype(str(dtype))
    if dtype.hasobject:
        raise CheckpointError(f"array {name} claims to hold objects")
    return numpy.frombuffer(decoder.tensor_of(name).numpy().tobytes(), dtype=dtype).reshape([int(n) for n in shape]).copy()


def _dtype(name):
    found = getattr(torch, str(name), None)
    if not isinstance(found, torch.dtype):
        raise CheckpointError(f"{name!r} is no dtype")
    return found


def _sparse(decoder, value, path, depth):
    indices, values, shape = value
    return torch.sparse_coo_tensor(decoder.decode(indices, path, depth), decoder.decode(values, path, depth),
                                   [int(n) for n in shape], check_invariants=True).coalesce()


_DECODERS = {
    "$t": lambda d, v, p, n: d.tensor_of(v),
    "$float": lambda d, v, p, n: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[v],
    "$tuple": lambda d, v, p, n: tuple(d.decode(i, p, n) for i in v),
    "$dict": lambda d, v, p, n: dict(d.pairs(v, p, n)),
    "$ordered": lambda d, v, p, n: collections.OrderedDict(d.pairs(v, p, n)),
    "$size": lambda d, v, p, n: torch.Size([int(i) for i in v]),
    "$set": lambda d, v, p, n: {d.decode(i, p, n) for i in v},
    "$frozenset": lambda d, v, p, n: frozenset(d.decode(i, p, n) for i in v),
    "$bytes": lambda d, v, p, n: base64.b64decode(v),
    "$bytearray": lambda d, v, p, n: bytearray(base64.b64decode(v)),
    "$complex": lambda d, v, p, n: complex(float(v[0]), float(v[1])),
    "$complex128": lambda d, v, p, n: torch.view_as_complex(d.decode(v, p, n)),
    "$dtype": lambda d, v, p, n: _dtype(v),
    "$device": lambda d, v, p, n: torch.device(str(v)),
    "$range": lambda d, v, p, n: range(*(int(i) for i in v)),
    "$deque": lambda d, v, p, n: collections.deque((d.decode(i, p, n) for i in v[0]), maxlen=v[1]),
    "$counter": lambda d, v, p, n: collections.Counter(dict(d.pairs(v, p, n))),
    "$array": lambda d, v, p, n: _numpy_array(d, v),
    "$scalar": lambda d, v, p, n: _numpy_array(d, v)[()],
    "$sparse": _sparse,
}
