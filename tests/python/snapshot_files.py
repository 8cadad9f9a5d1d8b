"""Makes memory snapshots for the tests: small training runs through a caching allocator of one page."""
import pickle
import random

MIB = 1 << 20


class Allocator:
    """Segments of 2 MiB (small) and 20 MiB or more (large), first fit by address; enough to make traces that agree with
    their segments."""

    def __init__(self):
        self.segments, self.blocks, self.trace = {}, {}, []
        self.clock, self.next = 1_760_000_000_000_000, 0x7F0000000000

    def event(self, action, address, size, frames, **more):
        self.clock += 10
        entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": self.clock,
                 "compile_context": "".join(("N/", "A")), "user_metadata": "", **more}
        if frames is not None:
            entry["frames"] = frames
        self.trace.append(entry)

    def alloc(self, size, frames):
        rounded = max(512, (size + 511) // 512 * 512)
        small = rounded <= MIB
        for base in sorted(self.segments):
            total, kind = self.segments[base]
            if kind != small:
                continue
            at = base
            for address in sorted(a for a in self.blocks if base <= a < base + total):
                if address - at >= rounded:
                    break
                at = address + self.blocks[address][0]
            if base + total - at >= rounded:
                break
        else:
            total = 2 * MIB if small else 20 * MIB if rounded < 10 * MIB else (rounded + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
            base = at = self.next
            self.next += total + 2 * MIB
            self.segments[base] = (total, small)
            self.event("segment_alloc", base, total, frames)
        self.blocks[at] = (rounded, size, frames)
        self.event("alloc", at, size, frames)
        return at

    def free(self, address, frames):
        _, size, _ = self.blocks.pop(address)
        self.event("free_requested", address, size, frames)
        self.event("free_completed", address, size, frames)

    def segment_list(self, device=0):
        out = []
        for base in sorted(self.segments):
            total, small = self.segments[base]
            blocks, at = [], base
            for address in sorted(a for a in self.blocks if base <= a < base + total):
                if address > at:
                    blocks.append({"address": at, "size": address - at, "requested_size": 0, "state": "inactive", "frames": []})
                rounded, size, frames = self.blocks[address]
                blocks.append({"address": address, "size": rounded, "requested_size": size, "state": "active_allocated", "frames": frames or []})
                at = address + rounded
            if at < base + total:
                blocks.append({"address": at, "size": base + total - at, "requested_size": 0, "state": "inactive", "frames": []})
            used = [b for b in blocks if b["state"] != "inactive"]
            out.append({"device": device, "address": base, "total_size": total, "allocated_size": sum(b["size"] for b in used),
                        "active_size": sum(b["size"] for b in used), "requested_size": sum(b["requested_size"] for b in used), "stream": 0,
                        "segment_type": "small" if small else "large", "segment_pool_id": (0, 0), "is_expandable": False, "blocks": blocks, "frames": []})
        return out


FRAMES = {}


def stack(*lines):
    """Innermost first; ("train.py", 3, "step"). Equal frames are one object, stacks are not, as in real files."""
    return [FRAMES.setdefault(line, {"name": line[2], "filename": line[0], "line": line[1]}) for line in lines]


LOOP = ("/home/u/train.py", 90, "main")
CPP = ("torch::unwind::unwind()", 0, "??")


def training(steps=12, leak=0, leak_until=None, layers=4, marks=True, seed=1):
    """`leak` bytes per step are kept, until step `leak_until`. Returns the snapshot."""
    random.seed(seed)
    a = Allocator()
    annotations = []
    forward = lambda i: stack(("??", 0, "torch::unwind::unwind()"), ("/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 125, "forward"),
                              ("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1751, "_call_impl"), ("/home/u/model.py", 20 + i, "forward"), LOOP)
    backward = lambda i: stack(("??", 0, "torch::unwind::unwind()"), ("", 0, f"torch::autograd::generated::AddmmBackward{i}::apply(x)"),
                               ("", 0, "torch::autograd::Engine::thread_main(y)"))
    init = lambda i: stack(("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 942, "_apply"), ("/home/u/train.py", 10 + i, "build"))
    for i in range(layers):
        a.alloc(4 * MIB, init(i))
    for step in range(steps):
        mark = {"name": f"ProfilerStep#{step}", "device": 0}
        annotations.append({"stage": "START", **mark, "time_us": a.clock + 5})
        held = [a.alloc((2 + i) * MIB + 8 * random.randrange(64), forward(i)) for i in range(layers)]
        for i in reversed(range(layers)):
            gradient = a.alloc(3 * MIB, backward(i))
            a.free(held[i], backward(i))
            a.free(gradient, backward(i))
        if leak and (leak_until is None or step < leak_until):
            a.alloc(leak, stack(("/home/u/metrics.py", 7, "append"), LOOP))
        annotations.append({"stage": "END", **mark, "time_us": a.clock + 5})
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0, "expandable_segments": False,
                "pinned_num_register_threads": 1, "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)}}
    return {"segments": a.segment_list(), "device_traces": [a.trace], "allocator_settings": settings,
            "external_annotations": annotations if marks else []}


def save(snapshot, path, protocol=4):
    with open(path, "wb") as file:
        pickle.dump(snapshot, file, protocol=protocol)
    return path


if __name__ == "__main__":  # the corpus's own file
    import sys

    save(training(steps=3, layers=2, leak=4096), sys.argv[1])
