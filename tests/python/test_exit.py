"""Leaving in order: signals, memory, several ranks."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import lowtide  # noqa: E402
from lowtide import checkpoint_store as store  # noqa: E402
from lowtide import exit as leaving  # noqa: E402
from lowtide.checkpoint import Checkpointer  # noqa: E402

PACKAGE = os.path.dirname(list(lowtide.__path__)[0])

LOOP = r'''
import sys, time, torch
from lowtide.checkpoint import Checkpointer
from lowtide.exit import GracefulExit
model = torch.nn.Linear(4, 4)
keeper = Checkpointer(sys.argv[1], model=model, every_steps=None, every_seconds=None)
keeper.resume()
leave = GracefulExit(keeper, memory=None)
print("ready", keeper.step_number, flush=True)
while keeper.step_number < 10 ** 6:
    time.sleep(0.001)
    keeper.step()
    leave.step()
'''


def start(folder):
    child = subprocess.Popen([sys.executable, "-c", LOOP, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "PYTHONPATH": PACKAGE, "LOWTIDE_RUN_DIR": str(folder)})
    line = child.stdout.readline().split()
    assert line and line[0] == "ready", child.stderr.read()
    return child, int(line[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signal_saves_and_exits_143(tmp_path, number):
    child, first = start(tmp_path)
    assert first == 0
    time.sleep(0.1)
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 143 and out == "" and err == "", err
    (entry,) = store.entries(tmp_path)
    entry.verify()
    assert entry.step > 0
    (note,) = [json.loads(line) for line in (tmp_path / "findings-rank0.jsonl").read_text().splitlines()]
    assert note["code"] == "LT704" and note["severity"] == "note" and signal.Signals(number).name in note["message"]
    child, second = start(tmp_path)
    child.kill()
    child.communicate()
    assert second == entry.step


def test_memory_threshold(tmp_path, monkeypatch):
    monkeypatch.setattr(leaving, "memory_use", lambda: [("host", 10, 100), ("cgroup", 90, 100)])
    model = torch.nn.Linear(2, 2)
    with Checkpointer(tmp_path, model=model) as keeper:
        leave = leaving.GracefulExit(keeper, signals=(), exit_code=77)
        with pytest.raises(SystemExit) as raised:
            leave.step()
        assert raised.value.code == 77 and leave.saved and "cgroup at 90.0 %" in leave.detail
    assert len(store.entries(tmp_path)) == 1


def test_below_the_threshold_goes_on(monkeypatch):
    monkeypatch.setattr(leaving, "memory_use", lambda: [("host", 84, 100)])
    leave = leaving.GracefulExit(signals=())
    for _ in range(5):
        leave.step()


def test_memory_use_is_plausible():
    rows = dict((name, (used, limit)) for name, used, limit in leaving.memory_use())
    used, limit = rows["host"]
    assert 0 < used < limit and limit > 1 << 28


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    leave = leaving.GracefulExit()
    assert signal.getsignal(signal.SIGTERM) != before
    leave.close()
    assert signal.getsignal(signal.SIGTERM) == before


RANKS = r'''
import os, signal, sys, time, torch
import torch.distributed as dist
from lowtide.checkpoint import Checkpointer
from lowtide.exit import GracefulExit
torch.set_num_threads(1)
children = []
for rank in range(3):
    pid = os.fork()
    if pid == 0:
        dist.init_process_group("gloo", init_method="file://" + sys.argv[1] + "-meet", rank=rank, world_size=3)
        keeper = Checkpointer(sys.argv[1], model=torch.nn.Linear(2, 2), every_steps=None, every_seconds=None)
        leave = GracefulExit(keeper, memory=None)
        for step in range(400):
            keeper.step()
            if rank == 2 and step == 20:
                os.kill(os.getpid(), signal.SIGTERM)   # this rank alone is told
            try:
                leave.step()
            except SystemExit as end:
                os._exit(100 + keeper.step_number if end.code == 143 else 1)
        os._exit(0)
    children.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
'''


def test_ranks_leave_at_the_same_step(tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    folder = tmp_path / "c"
    done = subprocess.run([sys.executable, "-c", RANKS, str(folder)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": PACKAGE})
    assert done.stdout.strip() == "[121, 121, 121]", (done.stdout, done.stderr)
    (entry,) = store.entries(folder)
    entry.verify()
    assert entry.step == 21 and entry.manifest()["world"] == 3
