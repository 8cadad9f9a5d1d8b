#!/usr/bin/env python3
"""`lowtide snapshot` beside pickle.load on large generated snapshots, in one run: CPU seconds, wall seconds, peak memory.

usage: snapshot.py [--lowtide BIN] [--generator gen_snapshot.py] [--events N ...] [--rounds R] [--keep FOLDER]

pickle.load alone (with the garbage collector on, as users run it) is what every Python tool pays before it has looked
at anything; lowtide's figure is the whole report. The two take turns, so that both meet the same load of the machine;
ratios are of medians.
"""
import argparse
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOAD = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
LOAD_NO_GC = "import gc, pickle, sys; gc.disable(); pickle.load(open(sys.argv[1], 'rb'))"


def measure(command):
    """(CPU s, wall s, peak resident bytes) of one process."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 1):
        raise SystemExit(f"{shlex.join(command)} ended with {code}: {process.stderr.read().decode()[-300:]}")
    return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lowtide", default="lowtide")
    parser.add_argument("--generator", type=pathlib.Path, default=ROOT.parent / "shared/tools/gen_snapshot.py")
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the generated files; made anew when absent there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = args.keep or pathlib.Path(made)
        for events in args.events:
            path = folder / f"events-{events}.pickle"
            if not path.exists():
                subprocess.run([sys.executable, args.generator, path, "--events", str(events)], check=True, stdout=subprocess.DEVNULL)
            compare(path, args)


def compare(path, args):
    size = path.stat().st_size
    lowtide = shlex.split(args.lowtide)
    tools = {
        "pickle.load": [sys.executable, "-c", LOAD, str(path)],
        "pickle.load, gc off": [sys.executable, "-c", LOAD_NO_GC, str(path)],
        "lowtide, 1 thread": [*lowtide, "snapshot", str(path), "--threads", "1"],
        "lowtide, 2 threads": [*lowtide, "snapshot", str(path), "--threads", "2"],
        "lowtide, json": [*lowtide, "snapshot", str(path), "--format", "json"],
        "lowtide, html": [*lowtide, "snapshot", str(path), "--format", "html", "-o", str(path) + ".html"],
    }
    subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)  # into the page cache, and not into this process
    runs = {name: [] for name in tools}
    for _ in range(args.rounds):
        for name, command in tools.items():
            runs[name].append(measure(command))
    pathlib.Path(str(path) + ".html").unlink(missing_ok=True)
    middle = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in runs.items()}
    base_cpu, base_wall, _ = middle["pickle.load"]
    print(f"{path.name}: {size / 1e6:.0f} MB, {args.rounds} rounds, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    for name, (cpu, wall, memory) in middle.items():
        print(f"  {name:<20} CPU {cpu:7.2f} s ({base_cpu / cpu:5.1f}x)  wall {wall:7.2f} s ({base_wall / wall:5.1f}x)  "
              f"peak {memory / 1e6:7.0f} MB ({memory / size:.2f} of the file)", flush=True)


if __name__ == "__main__":
    main()
