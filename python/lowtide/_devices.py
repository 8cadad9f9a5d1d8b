"""What PyTorch knows of the devices in use and the allocators' own reports do not say: sizes, names, totals."""
import sys

from lowtide import _track


def watch_silent():
    """Allocators that report no blocks (backend cudaMallocAsync, a PyTorch without the slot) are asked for their totals."""
    torch = sys.modules["torch"]
    if getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None):
        _track.set_device_stats(_stats)


_peaks = {}  # by device: PyTorch's peak is of the whole run, until the script resets it


def _stats():
    cuda, rows = sys.modules["torch"].cuda, []
    if not cuda.is_initialized():
        return rows
    for index in range(cuda.device_count()):
        stats = cuda.memory_stats_as_nested_dict(index)
        held, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]["current"]
        if not reserved and index not in _peaks:
            continue
        peak = held["peak"] if held["peak"] > _peaks.get(index, 0) else held["current"]
        _peaks[index] = held["peak"]
        rows.append((1, index, held["current"], reserved, peak, stats.get("allocation", {}).get("all", {}).get("current", 0)))
    return rows


def describe():
    """Size and name of each device in use: PyTorch knows them, the allocator's reports do not say."""
    torch = sys.modules["torch"]
    for kind, index, *_ in _track.figures()["devices"]:
        try:
            module = {1: torch.cuda, 6: torch.cuda, 12: getattr(torch, "xpu", None)}.get(kind)
            properties = module.get_device_properties(index)
            share = getattr(module, "get_per_process_memory_fraction", lambda index: 1.0)(index)
            _track.set_device(kind, index, int(properties.total_memory * share), properties.name)
        except Exception:
            pass  # the size stays unknown: `--capacity` tells it
