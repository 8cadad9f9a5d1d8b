"""`lowtide.snapshot()` in a live process: with a stand-in for CUDA, and without any."""
import os
import pickle
import subprocess
import sys

import pytest

from conftest import ROOT

STAND_IN = """
import sys, types
torch = types.ModuleType("torch"); torch.cuda = types.SimpleNamespace(); torch._C = types.SimpleNamespace()
calls = []
observers = []
torch.cuda.is_available = lambda: True
torch.cuda.memory = types.SimpleNamespace(
    _record_memory_history=lambda *a, **k: calls.append((a, k)),
    _snapshot=lambda *a: {"segments": [], "device_traces": []})
torch._C._cuda_attachOutOfMemoryObserver = observers.append
sys.modules["torch"] = torch
"""


def run(code, tmp_path, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment})


def test_records_saves_and_stops(tmp_path):
    done = run(STAND_IN + """
import lowtide
memory = lowtide.snapshot("out")
assert lowtide.snapshot() is memory
assert calls[0][1]["context"] == "all" and calls[0][1]["stacks"] == "python" and calls[0][1]["max_entries"] >= 1_000_000
print(memory.save("now"))
for _ in range(9): observers[0](0, 1, 2, 3)
memory.stop()
assert calls[-1][0] == (None,)
assert memory.save() is None
""", tmp_path, RANK="3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == os.path.join("out", "now-rank3.pickle")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["now-rank3.pickle", "oom-1-rank3.pickle", "oom-2-rank3.pickle", "oom-3-rank3.pickle"]
    assert pickle.loads((tmp_path / "out" / "now-rank3.pickle").read_bytes()) == {"segments": [], "device_traces": []}
    assert done.stderr == ""


def test_what_breaks_inside_is_said_once_and_never_raised(tmp_path):
    done = run(STAND_IN + """
import lowtide
def broken(*a): raise RuntimeError("driver gone")
torch.cuda.memory._snapshot = broken
with lowtide.snapshot("out") as memory:
    assert memory.save() is None and memory.save() is None
""", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("driver gone") == 1


def test_without_cuda_it_says_so_once(tmp_path):
    pytest.importorskip("torch")
    done = run("import lowtide\nlowtide.snapshot(); memory = lowtide.snapshot()\nassert not memory.active and memory.save() is None\nmemory.stop()", tmp_path,
               CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no CUDA device") == 1 and done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_without_torch_it_says_so(tmp_path):
    done = run("import sys; sys.modules['torch'] = None\nimport lowtide\nlowtide.snapshot()", tmp_path)
    assert done.returncode == 0 and "not installed" in done.stderr
