"""Cost of a census, as ratios measured in this run. usage: holders.py [OBJECTS ...]   (default 100000 1000000 5000000)

For each number of objects: the census and the comparison against one gc.collect(); against objgraph (one chain from each
of 50 suspects) and guppy3 (paths and dominated sizes) where these are installed; the pause; bytes kept per object.
Processor seconds of this thread, the least of three.
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


def against_guppy(census):
    try:
        from guppy import hpy
    except ImportError:
        return "guppy3 is not installed"
    heap = hpy()

    def paths_and_sizes():
        found = heap.heap() & heap.Type(Suspect)
        return found.domisize, str(found.shpaths)

    return f"guppy3 {seconds(paths_and_sizes, rounds=1) / census:.0f}x"


def measure(count):
    shelf = objects(count)
    gc.collect()
    collected = seconds(gc.collect)
    marks = []
    census = seconds(lambda: marks.append(_walk.take()))
    info = marks[-1].info()
    del marks[:-1]
    begun = time.perf_counter()
    compared = seconds(lambda: _walk.compare(marks[0], 1, 64), rounds=2)
    pause = (time.perf_counter() - begun) / 2
    print(f"{info['objects']:>8} objects: gc.collect {collected:.3f} s; census {census / collected:.2f}x (walk "
          f"{info['build_seconds']:.3f} s, dominators {info['dominator_seconds']:.3f} s by the clock); comparison "
          f"{compared / collected:.2f}x; pause {pause:.3f} s; {info['memory_bytes'] / info['objects']:.0f} bytes kept per "
          f"object", flush=True)
    if count <= 1_000_000:
        print("         " + against_objgraph(shelf, census) + "; " + against_guppy(census), flush=True)


def main():
    if "torch" in sys.modules:
        _census._ready(_census.census)
    for count in [int(a) for a in sys.argv[1:]] or [100_000, 1_000_000, 5_000_000]:
        measure(count)


if __name__ == "__main__":
    main()
