#!/usr/bin/env python3
"""What `lowtide run` costs a training loop, beside memray and torch.profiler on the same loops, in one run.

usage: overhead.py [--rounds N] [--lowtide CMD] [--instructions] [--only LOOP]

Each round runs every variant of a loop once, in a new order; a ratio is the median over rounds of variant / bare of the
same round, for wall time and for processor time of the loop (imports and warm-up left out); on a machine that does other
things as well only the second says much. Goal: lowtide <= 1.005 on all three loops.
--instructions counts instructions of the first loop under callgrind: (long run - short run) / steps, so that start-up
cancels out. Goal: <= +0.5 %.
"""
import argparse
import os
import pathlib
import random
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RUN = str(HERE / "loops" / "run.py")
STEPS = {"mlp": 60000, "transformer": 600, "loader": 5000}


def seconds(command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})}, timeout=900)
    found = re.search(r"seconds ([\d.]+) cpu ([\d.]+)", done.stdout)
    if not found:
        raise RuntimeError(f"{command}: {done.stderr[-400:]}")
    return complex(float(found.group(1)), float(found.group(2)))  # wall, processor


def variants(loop, lowtide, folder):
    work = [RUN, loop, str(STEPS[loop])]
    yield "bare", lambda: seconds([sys.executable, *work])
    yield "lowtide", lambda: seconds([*lowtide, "run", "-q", "-f", "-o", f"{folder}/run", *work])
    if shutil.which("memray") or subprocess.run([sys.executable, "-c", "import memray"], capture_output=True).returncode == 0:
        yield "memray", lambda: seconds([sys.executable, "-m", "memray", "run", "-q", "-f", "-o", f"{folder}/m.bin", *work])
    short = [RUN, loop, str(max(50, STEPS[loop] // 20))]
    yield "torch.profiler", lambda: seconds([sys.executable, *short], {"LOWTIDE_BENCH_PROFILER": "1"}) * 20


def time_ratios(args, folder):
    for loop in STEPS:
        if args.only and loop != args.only:
            continue
        table = dict(variants(loop, args.lowtide, folder))
        taken = {name: [] for name in table}
        for _ in range(args.rounds):
            order = list(table)
            random.shuffle(order)
            for name in order:
                taken[name].append(table[name]())
        bare = taken["bare"]
        print(f"{loop}: {1e6 * statistics.median(t.real for t in bare) / STEPS[loop]:.0f} us a step bare, {args.rounds} rounds", flush=True)
        for name, times in taken.items():
            wall, processor = ([part(t) / part(b) for t, b in zip(times, bare)] for part in (lambda t: t.real, lambda t: t.imag))
            print(f"  {name:15} wall x {statistics.median(wall):.4f} ({min(wall):.3f} .. {max(wall):.3f})   processor x "
                  f"{statistics.median(processor):.4f} ({min(processor):.3f} .. {max(processor):.3f})", flush=True)


def count_instructions(args, folder):
    counts = {}
    env_run = [*args.lowtide, "run", "-q", "-f", "-o", f"{folder}/run", "--", "valgrind"]
    for name in ("bare", "lowtide"):
        per = []
        for steps in ("2000", "5000"):  # past the credit that samplers have at the start
            out = f"{folder}/{name}-{steps}.out"
            tail = ["--tool=callgrind", f"--callgrind-out-file={out}", sys.executable, RUN, "mlp", steps]
            command = ["valgrind", *tail] if name == "bare" else [*env_run, *tail]
            subprocess.run(command, check=True, capture_output=True, timeout=3000, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"})
            per.append(int(re.search(r"^totals: (\d+)", pathlib.Path(out).read_text(), re.MULTILINE).group(1)))
        counts[name] = (per[1] - per[0]) / 3000
        print(f"{name}: {counts[name]:.0f} instructions a step", flush=True)
    print(f"instructions x {counts['lowtide'] / counts['bare']:.5f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--lowtide", type=shlex.split, default=["lowtide"])
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        count_instructions(args, folder) if args.instructions else time_ratios(args, folder)


main()
