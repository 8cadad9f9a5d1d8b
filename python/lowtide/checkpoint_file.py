"""One checkpoint file: staged in memory that was set aside, written in one step, read with every checksum verified.

The layout is safetensors' (any reader of that format opens it); include/lowtide/checkpoint/format.h says what is added.
"""
import ctypes
import json
import math
import os
import struct
import weakref

import torch

from lowtide import _guard
from lowtide.checkpoint_tree import DTYPES, NAMES, CheckpointError, Decoder, Encoder

VERSION = 1
PAGE = 4096
SEAL = "lowtide.seal"
_SEAL = struct.Struct("<8sIIQQ16s12x")


def _round(bytes_):
    return (bytes_ + PAGE - 1) // PAGE * PAGE


class Staging:
    """Pages that stay allocated between saves, so that saving near the memory's end needs none."""

    def __init__(self, bytes_=0):
        self.bytes = self.address = 0
        self._free = None
        if bytes_:
            self.reserve(bytes_)

    def reserve(self, bytes_):
        bytes_ = _round(bytes_)
        if bytes_ <= self.bytes:
            return
        self.release()
        self.address = _guard.allocate(bytes_)
        self.bytes = bytes_
        self._free = weakref.finalize(self, _guard.free, self.address, bytes_)

    def release(self):
        if self._free is not None:
            self._free()
            self._free = None
        self.bytes = self.address = 0


class Image:
    """A file as it will be: laid out, then filled from the tensors, then sealed."""

    def __init__(self, state, *, step=0, metadata=None):
        encoder = Encoder()
        tree = encoder.encode(state)
        self.step = step
        self.nonce = os.urandom(16)
        # By element size from the largest down: no gaps, and each tensor aligned to its own element.
        self.items = sorted(encoder.tensors.items(), key=lambda item: -item[1].element_size())
        offset, entries = 0, []
        for name, tensor in self.items:
            size = tensor.numel() * tensor.element_size()
            entries.append((name, NAMES[tensor.dtype], list(tensor.shape), offset, offset + size))
            offset += size
        self.data_bytes = offset
        # Checksums stand in the order in which readers sort: by place, then name.
        self.order = sorted(range(len(entries)), key=lambda i: (entries[i][3], entries[i][4], entries[i][0]))
        strings = {"format": "pt", "lowtide.version": str(VERSION), "lowtide.step": str(step), **(metadata or {})}
        # ensure_ascii: lone surrogates in names survive as escapes
        strings["lowtide.tree"] = json.dumps(tree, separators=(",", ":"), ensure_ascii=True)
        strings["lowtide.crc32c"] = self._mark = "%" * (8 * len(entries))
        header = {"__metadata__": strings}
        for name, dtype, shape, begin, end in entries:
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        header[SEAL] = {"dtype": "U8", "shape": [64], "data_offsets": [offset, offset + 64]}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=True)
        length = _round(8 + len(text)) - 8
        self._text = text.ljust(length)
        self.data_start = 8 + length
        self.bytes = self.data_start + offset + 64
        self._entries = entries
        self.header_crc = 0

    def fill(self, staging):
        """Copies every tensor into the staging memory, with its checksum. After this the tensors may change."""
        staging.reserve(self.bytes)
        base = staging.address
        crcs = [0] * len(self._entries)
        device_copies = []
        for number, ((_, tensor), (name, _, _, begin, end)) in enumerate(zip(self.items, self._entries)):
            if end == begin:
                continue
            address = base + self.data_start + begin
            if tensor.is_cpu:
                dense = tensor if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg() else (
                    tensor.resolve_conj().resolve_neg().contiguous())
                crcs[number] = _guard.copy(address, dense.data_ptr(), end - begin)
            else:
                buffer = (ctypes.c_char * (end - begin)).from_address(address)
                target = torch.frombuffer(buffer, dtype=tensor.dtype).view(tensor.shape)
                target.copy_(tensor, non_blocking=True)
                device_copies.append((number, address, end - begin, tensor.device))
        for device in {device for *_, device in device_copies}:
            getattr(torch, device.type).synchronize(device)
        for number, address, size, _ in device_copies:
            crcs[number] = _guard.crc32c(address, size)
        table = "".join(f"{crcs[i]:08x}" for i in self.order)
        head = self._text.replace(self._mark, table, 1) if self._mark else self._text
        whole = struct.pack("<Q", len(head)) + head.encode("ascii")
        self.header_crc = _guard.crc32c_bytes(whole)
        _guard.put(base, whole)
        seal = _SEAL.pack(b"LTSEAL1\n", VERSION, self.header_crc, self.bytes, self.step, self.nonce)
        seal += struct.pack("<I", _guard.crc32c_bytes(seal))
        _guard.put(base + self.bytes - 64, seal)
        self.items = []  # holds no tensor of the user's from here on

    def write(self, staging, folder, name, *, threads=4, direct=True, sync=True):
        """Writes the filled image to `folder`/`name` in one step. OSError says which call failed."""
        temporary = f".tmp-{os.getpid()}-{self.nonce.hex()[:8]}-{name}"
        return _guard.write(folder, temporary, name, staging.address, self.bytes, threads, int(direct), int(sync))


def write_file(path, state, *, step=0, metadata=None, staging=None, **options):
    """Saves `state` to `path` at once: staged, written, durable when this returns."""
    folder, name = os.path.split(os.path.abspath(path))
    image = Image(state, step=step, metadata=metadata)
    staging = staging or Staging()
    image.fill(staging)
    image.write(staging, folder, name, **options)
    return image


class Reader:
    """A file opened for reading. Every tensor's checksum is verified when it is read."""

    def __init__(self, path):
        self.path = os.fspath(path)
        try:
            (self.metadata, self.tensors, self.step, self.nonce, self.bytes, self.header_crc) = _guard.header(self.path, False)
        except ValueError as error:
            raise CheckpointError(str(error)) from None
        self.by_name = {entry[0]: entry for entry in self.tensors}
        self._loaded = {}
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self):
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def tensor(self, name):
        if name in self._loaded:
            return self._loaded[name]
        entry = self.by_name.get(name) if isinstance(name, str) else None
        if entry is None:
            raise CheckpointError(f"{self.path}: there is no tensor {name!r}")
        _, dtype, shape, offset, size, crc = entry
        if dtype not in DTYPES:
            raise CheckpointError(f"{self.path}: this PyTorch has no type for {dtype} (tensor {name})")
        out = torch.empty(shape, dtype=DTYPES[dtype])
        if size:
            try:
                found = _guard.read(self._fd, offset, out.data_ptr(), size)
            except (OSError, EOFError) as error:
                raise CheckpointError(f"{self.path}: tensor {name} cannot be read: {error}") from None
            if found != crc:
                raise CheckpointError(f"{self.path}: the checksum of tensor {name} differs (at byte {offset})\n"
                                      "  help: it is damaged: use an older checkpoint")
        self._loaded[name] = out
        return out

    def state(self):
        """The whole state as it was given to the writer."""
        try:
            tree = json.loads(self.metadata.get("lowtide.tree", ""))
        except (ValueError, RecursionError):
            raise CheckpointError(f"{self.path}: the description of the state is not JSON") from None
        try:
            return Decoder(self.tensor).decode(tree)
        except CheckpointError as error:
            text = str(error)
            raise CheckpointError(text if text.startswith(self.path) else f"{self.path}: {text}") from None
        except RecursionError:
            raise CheckpointError(f"{self.path}: the state is nested too deeply") from None


def read_file(path):
    """The state stored in `path`, verified. Raises :class:`CheckpointError`."""
    with Reader(path) as reader:
        return reader.state()


def verify_file(path):
    """Reads all of the file and checks every checksum; raises :class:`CheckpointError`."""
    try:
        return _guard.header(os.fspath(path), True)
    except ValueError as error:
        raise CheckpointError(str(error)) from None


def megabytes(bytes_):
    return f"{bytes_ / 1e6:.1f} MB" if bytes_ < 1e9 else f"{bytes_ / 1e9:.2f} GB"


def finite_or_none(value):
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None
