"""Short hashes of tensors, cheap enough to take a few times in a run: compared between ranks by the outside."""
import ctypes
import zlib

MOST_ROWS = 32
MOST_COLUMNS = 2048
MOST_ELEMENTS = 2048


def plain(torch, tensor):
    """Whether this is a dense tensor of this process alone, no shard of a distributed one."""
    return (type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided and tensor.numel() > 0
            and tensor.device.type != "meta" and not hasattr(tensor, "_local_tensor"))


def _bytes(tensor):
    tensor = tensor.contiguous().cpu()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def of_tensor(torch, tensor):
    """(crc32, sum of magnitudes) of at most MOST_ELEMENTS evenly spaced elements."""
    with torch.no_grad():
        flat = tensor.detach().reshape(-1) if tensor.is_contiguous() else tensor.detach().flatten()
        flat = flat[:: 1 + (flat.numel() - 1) // MOST_ELEMENTS].contiguous().cpu()
        size = float(flat.double().abs().sum()) if flat.is_floating_point() else 0.0
        return zlib.crc32(_bytes(flat)), size


def of_rows(torch, tensor):
    """crc32 of each of the first MOST_ROWS rows (entries of dimension 0); long rows by evenly spaced elements."""
    with torch.no_grad():
        rows = tensor.detach()[:MOST_ROWS]
        rows = rows.reshape(rows.shape[0], -1)
        rows = rows[:, :: 1 + (rows.shape[1] - 1) // MOST_COLUMNS]
        data = _bytes(rows)
    width = len(data) // rows.shape[0]
    return [zlib.crc32(data[i * width:(i + 1) * width]) for i in range(rows.shape[0])]


def biggest(torch, values, depth=3):
    """The tensor with the most elements among what a model is called with, which has rows; None without one."""
    best = None
    for value in values:
        if isinstance(value, torch.Tensor):
            found = value if value.dim() > 0 and value.dtype != torch.bool and plain(torch, value) else None
        elif depth and isinstance(value, dict):
            found = biggest(torch, value.values(), depth - 1)
        elif depth and isinstance(value, (list, tuple)):
            found = biggest(torch, value[:64], depth - 1)
        else:
            found = None
        if found is not None and (best is None or found.numel() > best.numel()):
            best = found
    return best
