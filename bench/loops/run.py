"""run.py LOOP STEPS: runs one loop after a warm-up and prints `seconds S cpu C`. LOWTIDE_BENCH_PROFILER=1 runs it under
torch.profiler with memory recording."""
import contextlib
import importlib
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch

torch.set_num_threads(1)
step = importlib.import_module(sys.argv[1]).make()
steps = int(sys.argv[2])
for _ in range(min(50, steps)):
    step()
watched = contextlib.nullcontext()
if os.environ.get("LOWTIDE_BENCH_PROFILER"):
    watched = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
with watched:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(f"seconds {wall:.6f} cpu {cpu:.6f}")
