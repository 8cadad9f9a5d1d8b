"""Steps are told as the author's loop counts them, where the optimizer steps less often."""
import pytest
import ringfile

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

HEAD = '''
import itertools, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), 0.01)
data = TensorDataset(torch.randn(240, 8), torch.randn(240, 1))
loader = DataLoader(data, batch_size=4)  # 60 batches
def backward(x=torch.randn(4, 8)):
    model(x).mean().backward()
def update():
    opt.step()
    opt.zero_grad()
def progress(over, total=None):
    for item in over:
        yield item
'''

# name -> (program, iterations a step; None: not to be told)
LOOPS = {
    "every_step": ("for step in range(60):\n    backward(); update()", 1),
    "accumulated": ("for step in range(240):\n    backward()\n    if step % 4 == 3: update()", 4),
    "in_a_function": ('''
def train(steps):
    counters = lambda: step
    for step in range(1, steps):
        backward()
        if step % 3:
            update()
train(120)''', 1.5),
    "enumerated_batches": ("for epoch in range(4):\n    for i, (x, y) in progress(enumerate(loader)):\n        backward(x)\n"
                           "        if i % 3 == 2: update()", 3),
    "batches_alone": ("for epoch in range(4):\n    n = 0\n    for x, y in progress(loader):\n        backward(x)\n        n = n + 1\n"
                      "        if n % 3 == 0: update()", 3),
    "zipped": ("for step, x in zip(range(240), itertools.repeat(data[0][0])):\n    backward(x)\n    if step % 2: update()", 2),
    "while": ("step = 0\nwhile step < 240:\n    backward()\n    step += 1\n    if step % 5 == 0: update()", 5),
    "inner_loop_of_passes": ("for step in range(60):\n    for _ in range(4): backward()\n    update()", 1),
    "strides": ("for epoch in range(60):\n    for first in range(0, 64, 16):\n        backward(); update()", None),
    "passes_over_few_batches": ("for epoch in range(60):\n    for i in range(5):\n        backward(); update()", None),
    "counter_of_something_else": ("seen = 0\nwhile seen < 6000:\n    seen += 64\n    backward(); update()", None),
    "step_of_a_function_made_in_a_loop": ('''
for k in range(3):
    def train():
        for _ in itertools.repeat(0, 60):
            backward(); update()
train()''', None),
}


@pytest.mark.parametrize("name", LOOPS)
def test_iterations_of_a_step(record, name):
    program, wanted = LOOPS[name]
    done, document, folder = record(HEAD + program)
    assert done.returncode == 0, done.stderr
    steps, iterations, place = ringfile.RingFile(folder / "rank0.ring").loop()
    if wanted is None:
        assert steps == 0 or iterations == steps, (steps, iterations, place)
    else:
        assert steps > 0 and iterations / steps == pytest.approx(wanted, rel=0.06), (steps, iterations)
        assert place.startswith("program.py:")


def test_a_leak_is_told_by_the_iteration(record):
    done, document, folder = record(HEAD + '''
kept = []
for step in range(400):
    kept.append(torch.zeros(4096))
    backward()
    if step % 4 == 3:
        update()
''')
    leak = next(v for v in document["verdicts"] if v["pool"] == "cpu")
    assert leak["verdict"] == "leak" and leak["bytes_per_step"] == pytest.approx(16384, rel=0.05)
    assert leak["steps_seen"] == 400
    assert document["holders"][0]["bytes_per_step"] == pytest.approx(16384, rel=0.25)
    assert "400 steps" in done.stderr and "the optimizer steps once in 4 of them" in done.stderr


def test_nothing_is_said_of_the_source(record):
    """Python warns of an escape sequence once, when it compiles the script; reading it again is silent."""
    done, document, folder = record(HEAD + r"""
pattern = '\d'
for step in range(120):
    backward()
    if step % 2: update()
""", env={"PYTHONWARNINGS": "always"})
    assert ringfile.RingFile(folder / "rank0.ring").loop()[0] > 0
    assert "<unknown>" not in done.stderr, done.stderr


def test_what_the_user_calls_a_step_stays_one(record):
    done, document, folder = record(HEAD + '''
import lowtide
for step in range(240):
    backward()
    if step % 4 == 3:
        update()
        lowtide.step()
''')
    steps = next(v for v in document["verdicts"] if v["pool"] == "cpu")["steps_seen"]
    assert 59 <= steps <= 61, done.stderr


def test_variables_of_the_loop_are_not_kept(record):
    """Reading the counter makes nothing that holds the function's other variables."""
    done, _, folder = record(HEAD + '''
import weakref
def train():
    watched = []
    for step in range(60):
        batch = torch.zeros(64)
        watched.append(weakref.ref(batch))
        backward(); update()
        del batch
        if watched[-1]() is not None:
            print("kept at", step)
            return
    print("none kept")
train()
''')
    assert "none kept" in done.stdout
    assert ringfile.RingFile(folder / "rank0.ring").loop()[0] > 0, "it was read"


def test_holders_are_named_in_as_many_iterations_as_elsewhere(record):
    """Of 400 iterations, 50 steps: the two looks at the objects are paced by the loop, while its function still runs."""
    done, document, _ = record(HEAD + '''
def train(steps):
    kept = []
    for step in range(steps):
        kept.append(torch.zeros(4096))
        backward()
        time.sleep(0.01)
        if step % 8 == 7:
            update()
train(400)
''')
    assert document["holders"] and document["holders"][0]["path"] == "kept[*]", done.stderr
