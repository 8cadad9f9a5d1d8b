"""Cost of a census, as ratios measured in this run. usage: holders.py [OBJECTS ...]   (default 100000 1000000 5000000)

For each number of objects: the census (walk and dominators) and the comparison with a second one against one
gc.collect(); against objgraph (one chain from each of 50 suspects) and guppy3 (paths and dominated sizes) where these are
installed; the pauses; bytes kept per object. Processor seconds of this thread unless said otherwise, the least of three.
"""
import gc
import sys
import time

from lowtide import _census, _walk

SUSPECTS = 50


def seconds(function, rounds=3):
    best = None
    for _ in range(rounds):
        begun = time.thread_time()
        function()
        taken = time.thread_time() - begun
        best = taken if best is None else min(best, taken)
    return best


class Suspect:
    pass


def objects(count):
    """Lists in dicts in a list, three tracked objects to each, and the suspects deep inside."""
    shelf = [{"row": [i, [str(i)]]} for i in range(count // 3)]
    for i in range(SUSPECTS):
        shelf[i * 7]["row"].append(Suspect())
    return shelf


def against_objgraph(shelf, census):
    try:
        import objgraph
    except ImportError:
        return "objgraph is not installed"
    suspects = [entry for box in shelf[: SUSPECTS * 7] for entry in box["row"] if isinstance(entry, Suspect)]
    one = seconds(lambda: objgraph.find_backref_chain(suspects[0], objgraph.is_proper_module), rounds=1)
    return f"objgraph {one * SUSPECTS / census:.0f}x for {SUSPECTS} suspects ({one:.2f} s for one)"


def against_guppy(shelf, census):
    """The suspects as one set (their paths, the first ten of them written, and one size for all of them together), and
    one by one, as the census answers it: a path and a size to each (measured on one)."""
    try:
        from guppy import hpy
    except ImportError:
        return "guppy3 is not installed"
    heap = hpy()

    def together():
        found = heap.heap() & heap.Type(Suspect)
        return found.domisize, str(found.shpaths)

    def alone():
        one = heap.iso(shelf[0]["row"][-1])
        return one.domisize, str(one.shpaths)

    one = seconds(alone, rounds=1)
    return (f"guppy3 {seconds(together, rounds=1) / census:.0f}x for one set of all, {one * SUSPECTS / census:.0f}x for "
            f"{SUSPECTS} suspects ({one:.2f} s for one)")


def full_census():
    heap = _walk.take()
    heap.settle()
    return heap


def pause(function):
    """Seconds by the clock, the least of three."""
    taken = []
    for _ in range(3):
        begun = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def two_pauses():
    """The second mark as a run of many objects takes it: (seconds of the census, of the labels), each the least of three."""
    marks, labels = [], []
    for _ in range(3):
        mark = _walk.take()
        begun = time.perf_counter()
        pending = _walk.compare_later(mark, 1, 64)
        marks.append(time.perf_counter() - begun)
        while not pending.ready():
            time.sleep(0.001)
        begun = time.perf_counter()
        pending.finish()
        labels.append(time.perf_counter() - begun)
    return min(marks), min(labels)


def measure(count):
    shelf = objects(count)
    gc.collect()
    collected = seconds(gc.collect)
    census = seconds(full_census)
    mark = full_census()
    info = mark.info()
    compared = seconds(lambda: _walk.compare(mark, 1, 64), rounds=2)
    del mark
    print(f"{info['objects']:>8} objects: gc.collect {collected:.3f} s; census {census / collected:.2f}x; comparison with "
          f"another {compared / collected:.2f}x; pauses by the clock: gc.collect {pause(gc.collect):.3f} s, first mark "
          f"{pause(_walk.take):.3f} s, second in one {pause(lambda: _walk.compare(_walk.take(), 1, 64)) - pause(_walk.take):.3f} s, "
          f"in two {' and '.join(f'{seconds:.3f}' for seconds in two_pauses())} s; {info['memory_bytes'] / info['objects']:.0f} bytes kept per object", flush=True)
    if count <= 1_000_000:
        print("         " + against_objgraph(shelf, census) + "; " + against_guppy(shelf, census), flush=True)


def main():
    if "torch" in sys.modules:
        _census._ready(_census.census)
    for count in [int(a) for a in sys.argv[1:]] or [100_000, 1_000_000, 5_000_000]:
        measure(count)


if __name__ == "__main__":
    main()
