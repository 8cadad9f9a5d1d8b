"""Steps, epochs, phases and ranks are found without touching the script, and the script does not notice."""
import os
import signal
import subprocess
import sys

import pytest
from recording import recording  # noqa: F401
from ringfile import ABSENT

pytest.importorskip("torch", reason="PyTorch is not installed: there is no script to mark")

NET = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
net = nn.Linear(4, 1)
"""
EPOCH, VALIDATION, CHECKPOINT = 1, 2, 3
BEGIN, END = 1, 2

# name -> (program, steps, what ended them)
LOOPS = {
    "optimizer": ("opt = torch.optim.SGD(net.parameters(), lr=.1)\nfor _ in range(30):\n    net(torch.randn(2, 4)).sum().backward()\n    opt.step()\n", 30, 4),
    "accumulation": ("opt = torch.optim.SGD(net.parameters(), lr=.1)\nfor i in range(32):\n    net(torch.randn(2, 4)).sum().backward()\n"
                     "    if i % 8 == 7:\n        opt.step()\n", 4, 4),
    "two optimizers": ("a = torch.optim.SGD([net.weight], lr=.1)\nb = torch.optim.Adam([net.bias], lr=.1)\nfor _ in range(20):\n"
                       "    net(torch.randn(2, 4)).sum().backward()\n    a.step()\n    b.step()\n", 20, 4),
    "an optimizer made anew for each epoch": (
        "kept = []\nfor epoch in range(4):\n    opt = torch.optim.Adam(net.parameters(), lr=.1)\n    kept.append(opt)\n"
        "    for _ in range(10):\n        net(torch.randn(2, 4)).sum().backward()\n        opt.step()\n", 10 + 3 * 9, 4),
    "two optimizers of the same parameters": (
        "a = torch.optim.SGD(net.parameters(), lr=.1)\nb = torch.optim.Adam(net.parameters(), lr=.1)\nfor _ in range(20):\n"
        "    net(torch.randn(2, 4)).sum().backward()\n    a.step()\n    b.step()\n", 20, 4),
    "inference over a loader": ("net.eval()\nwith torch.no_grad():\n    for x, y in DataLoader(data, batch_size=4):\n        net(x)\n", 12, 3),
    "weights moved by hand": ("for _ in range(30):\n    net(torch.randn(2, 4)).sum().backward()\n    for p in net.parameters():\n"
                              "        p.data -= .1 * p.grad\n        p.grad = None\n", 29, 2),
    "the user's own": ("import lowtide\nopt = torch.optim.SGD(net.parameters(), lr=.1)\nlowtide.step()\nfor _ in range(10):\n"
                       "    net(torch.randn(2, 4)).sum().backward()\n    opt.step()\n    opt.step()\n    lowtide.step()\n", 11, 5),
}


@pytest.mark.parametrize("name", LOOPS)
def test_steps_are_found(recording, name):
    program, steps, source = LOOPS[name]
    done = recording(NET + program)
    assert done.returncode == 0 and done.stdout == done.stderr == "", done.stderr
    ring = recording.ring()
    assert (ring.last_step, ring.source) == (steps, source)
    assert [row["step"] for row in ring.steps()] == list(range(1, steps + 1))
    assert ring.lost_marks == 0 and ring.exit_state == 1


def test_epochs_validation_checkpoints_and_workers(recording, tmp_path):
    done = recording(NET + f"""
import lowtide
if __name__ == "__main__":
    opt = torch.optim.SGD(net.parameters(), lr=.1)
    kept = []
    for epoch in range(3):
        net.train()
        for x, y in DataLoader(data, batch_size=8, num_workers=2):
            net(x).sum().backward()
            opt.step()
        net.eval()
        for x, y in DataLoader(data, batch_size=24):
            kept.append(net(x).detach())
        torch.save(net.state_dict(), {str(tmp_path / "net.pt")!r})
""")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    ring = recording.ring()
    assert ring.last_step == 18
    marks = [(kind, edge, step) for kind, edge, step, _, _ in ring.marks()]
    assert [m for m in marks if m[0] == EPOCH] == [(EPOCH, END, 6), (EPOCH, END, 12), (EPOCH, END, 18)]
    assert [m for m in marks if m[:2] == (VALIDATION, BEGIN)] == [(VALIDATION, BEGIN, step) for step in (6, 12, 18)]
    assert [m for m in marks if m[:2] == (VALIDATION, END)] == [(VALIDATION, END, 6), (VALIDATION, END, 12)]
    assert len([m for m in marks if m[0] == CHECKPOINT]) == 6
    assert [row["epoch"] for row in ring.steps()] == [0] * 6 + [1] * 6 + [2] * 6
    assert len(ring.workers()) == 6
    assert any(rss > 1 << 20 for _, _, rss, _ in ring.worker_samples() if rss != ABSENT)
    assert sorted(recording.rings()) == ["rank0.ring"]  # workers write none


def test_a_frozen_part_put_back_to_eval_is_no_validation(recording):
    done = recording(NET + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
    def train(self, mode=True):
        super().train(mode)
        self.frozen.eval()
        return self
    def forward(self, x):
        return self.head(self.frozen(x))
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=.1)
for _ in range(10):
    net.train()
    net(torch.randn(2, 4)).sum().backward()
    opt.step()
""")
    assert done.returncode == 0, done.stderr
    assert recording.ring().marks() == []


def test_a_run_ends_at_the_step_asked_for_and_unwinds(recording):
    program = NET + """
import atexit
atexit.register(lambda: print("atexit"))
opt = torch.optim.SGD(net.parameters(), lr=.1)
try:
    while True:
        net(torch.randn(2, 4)).sum().backward()
        opt.step()
finally:
    print("finally")
"""
    done = recording(program, env={"LOWTIDE_STEPS": "25"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "finally\natexit\n", "")
    assert recording.ring().last_step == 25 and recording.ring().exit_state == 3


@pytest.mark.parametrize("ending, code", [("os._exit(3)", 3), ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
                                          ("raise ValueError('x')", 1), ("sys.exit(7)", 7)])
def test_every_way_out_leaves_whole_records(recording, ending, code):
    done = recording(NET + "import lowtide, os, signal, sys\nfor _ in range(40):\n    lowtide.step()\n" + ending + "\n")
    assert done.returncode == code
    ring = recording.ring()
    assert len(ring.steps()) == 40
    assert ring.exit_state == (2 if "raise" in ending else 1 if "sys" in ending else 0)


def test_tracebacks_arguments_and_modules_are_as_without(recording):
    program = """
import sys
print(sys.argv[1:], [p for p in sys.path if "lowtide" in p], __name__, "sitecustomize" in sys.modules)
sys.stdout.flush()
import torch
def inner():
    torch.ones(1, requires_grad=True).exp().backward(torch.ones(2))
inner()
"""
    script = recording.script(program)
    plain = subprocess.run([sys.executable, script, "-x", "a b"], capture_output=True, text=True)
    with_it = subprocess.run([sys.executable, script, "-x", "a b"], capture_output=True, text=True, env=recording.environment())
    assert with_it.stderr == plain.stderr
    assert with_it.returncode == plain.returncode == 1
    assert with_it.stdout.split("]")[0] == plain.stdout.split("]")[0] == "['-x', 'a b'"
    assert with_it.stdout.split("__main__")[0] == plain.stdout.split("__main__")[0]


def test_the_shadowed_sitecustomize_still_runs(recording, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('theirs')\n")
    env = recording.environment()
    env["PYTHONPATH"] += os.pathsep + str(tmp_path / "site")
    done = subprocess.run([sys.executable, "-c", "pass"], capture_output=True, text=True, env=env)
    assert (done.stdout, done.stderr) == ("theirs\n", "")


def test_python_without_torch_pays_nothing(recording):
    done = recording("import sys\nprint([m for m in sys.modules if m.startswith('lowtide')])\n")
    assert done.stdout == "[]\n" and list(recording.run.iterdir()) == []


def test_spawned_ranks_are_named(recording):
    done = recording(NET + """
import os, socket
import torch.distributed as dist
import torch.multiprocessing as mp
def work(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    opt = torch.optim.SGD(net.parameters(), lr=.1)
    for _ in range(5 + rank):
        net(torch.randn(2, 4)).sum().backward()
        opt.step()
    dist.destroy_process_group()
if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(work, args=(port,), nprocs=2)
""")
    assert done.returncode == 0, done.stderr
    found = recording.rings()
    assert {name: ring.last_step for name, ring in found.items() if name.startswith("rank")} == {"rank0.ring": 5, "rank1.ring": 6}
    assert found["rank1.ring"].rank == 1 and found["rank1.ring"].world_size == 2


def test_a_folder_that_cannot_be_written_does_not_stop_the_script(recording):
    program = NET + "import lowtide\nfor _ in range(3):\n    lowtide.step()\nprint('done')\n"
    done = recording(program, env={"LOWTIDE_RUN_DIR": "/proc/nowhere"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_hooked_functions_look_like_themselves(recording):
    done = recording("""
import copy, inspect, pickle, torch
assert inspect.isfunction(torch.save) and torch.save.__name__ == "save"
assert list(inspect.signature(torch.save).parameters)[:2] == ["obj", "f"]
assert pickle.loads(pickle.dumps(torch.save)) is torch.save
assert copy.deepcopy(torch.save) is torch.save
@torch.jit.script
def scripted(x):
    with torch.no_grad():
        return x + 1
assert scripted(torch.zeros(1)).item() == 1
with torch.no_grad():
    assert not torch.is_grad_enabled()
@torch.inference_mode()
def infer(): return torch.is_inference_mode_enabled()
assert infer()
print("held")
""")
    assert done.stdout == "held\n", done.stderr
