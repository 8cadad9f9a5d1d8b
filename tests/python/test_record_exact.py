"""Bytes of CPU tensors are counted exactly, whatever is done with the tensors."""
import json

import pytest
from recording import Recording, recording  # noqa: F401

pytest.importorskip("torch", reason="PyTorch is not installed: tensors cannot be counted")

HEAD = '''
import gc, threading
import torch
from lowtide import _bootstrap
track = _bootstrap.track
def now():
    gc.collect()
    return track.figures()["cpu_bytes"]
def check(what, got, want):
    assert got == want, f"{what}: {got} counted, {want} alive"
start = now()
'''

CASES = {
    "plain tensors": '''
kept = [torch.zeros(n) for n in (1, 10, 1000, 300_000, 5_000_000)]
check("made", now() - start, 4 * 5_301_011)
del kept
check("freed", now() - start, 0)
''',
    "views share, clones do not": '''
base = torch.zeros(1000)
views = [base[i:] for i in range(10)] + [base.view(10, 100).t(), base.unfold(0, 3, 1)]
check("views", now() - start, 4000)
copy = base.clone()
check("clone", now() - start, 8000)
del base
check("the views hold it", now() - start, 8000)
del views, copy
check("freed", now() - start, 0)
''',
    "views of many dimensions": '''
base = torch.zeros(2, 2, 2, 2, 2, 2, 2, 2)
views = [base.permute(7, 6, 5, 4, 3, 2, 1, 0) for _ in range(100)]
check("eight dimensions", now() - start, 1024)
del base, views
check("freed", now() - start, 0)
''',
    "in place": '''
x = torch.zeros(1000)
for _ in range(100):
    x.add_(1).mul_(2)
check("in place", now() - start, 4000)
del x
check("freed", now() - start, 0)
''',
    "resize": '''
x = torch.zeros(10)
x.resize_(100_000)
check("grown", now() - start, 400_000)
x.untyped_storage().resize_(0)
check("emptied", now() - start, 0)
''',
    "saved for backward": '''
w = torch.ones(100, requires_grad=True)
x = w
for _ in range(10):
    x = x.exp()
check("results saved", now() - start, 400 + 10 * 400)
x.sum().backward()
del x
check("weight and gradient", now() - start, 800)
del w
check("freed", now() - start, 0)
''',
    "freed by another thread": '''
kept = []
makers = [threading.Thread(target=lambda: kept.extend(torch.zeros(256) for _ in range(500))) for _ in range(8)]
[t.start() for t in makers]; [t.join() for t in makers]
check("made in threads", now() - start, 8 * 500 * 1024)
lock = threading.Lock()
def drop():
    while True:
        with lock:
            if not kept: return
            one = kept.pop()
        del one
droppers = [threading.Thread(target=drop) for _ in range(8)]
[t.start() for t in droppers]; [t.join() for t in droppers]
check("freed", now() - start, 0)
''',
    "threaded backward": '''
w = torch.ones(50, 50, requires_grad=True)
def work():
    for _ in range(100):
        (w @ w).tanh().sum().backward()
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
check("weight and gradient", now() - start, 20_000)
''',
    "shared memory": '''
x = torch.zeros(1000)
x.share_memory_()
check("moved out of the pool", now() - start, 0)
check("into shared memory", track.figures()["shm_tensor_bytes"], 4096)  # whole pages
del x
gc.collect()
check("shared, freed", track.figures()["shm_tensor_bytes"], 0)
''',
    "numpy": '''
try:
    import numpy
except ImportError:
    return
x = torch.zeros(1000)
array = x.numpy()
del x
check("numpy holds it", now() - start, 4000)
foreign = torch.from_numpy(numpy.zeros(1000))
check("numpy's own is not torch's", now() - start, 4000)
del array, foreign
check("freed", now() - start, 0)
''',
    "storages passed on": '''
import copy, io
x = torch.arange(1000.)
y = copy.deepcopy(x)
buffer = io.BytesIO()
torch.save({"x": x}, buffer); buffer.seek(0)
z = torch.load(buffer)
check("three copies", now() - start, 12_000)
del x, y, z
check("freed", now() - start, 0)
''',
    "empty and huge": '''
e = [torch.empty(0) for _ in range(100)]
check("nothing", now() - start, 0)
try:
    torch.empty(1 << 50)
except RuntimeError as error:
    assert str(4 << 50) in str(error), error
check("a refusal", now() - start, 0)
''',
}


MODES = {"marks": "0", "table": "1"}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Runs every case in one process per way of counting (torch is slow to import): {mode: {case: error or ""}}."""
    program = HEAD + "import json, traceback\nresults = {}\n"
    for name, body in CASES.items():
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        program += f"def case():\n    global start\n    start = now()\n{lines}\ntry:\n    case(); results[{name!r}] = ''\n"
        program += f"except Exception:\n    results[{name!r}] = traceback.format_exc()\n"
    outcomes = {}
    for mode, table in MODES.items():
        done = Recording(tmp_path_factory.mktemp(mode))(program + "print(json.dumps(results))", env={"LOWTIDE_FORCE_TABLE": table})
        assert done.returncode == 0, done.stderr
        outcomes[mode] = json.loads(done.stdout)
    return outcomes


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_every_byte_is_counted(outcome, name, mode):
    assert outcome[mode][name] == ""


def test_the_peak_lies_between_steps(recording):
    done = recording('''
import torch, lowtide
kept = torch.zeros(1000)
lowtide.step()
big = torch.zeros(1_000_000); del big
lowtide.step()
lowtide.step()
''')
    assert done.returncode == 0, done.stderr
    first, second, third = recording.ring().steps()
    assert (first["cpu_bytes"], second["cpu_bytes"]) == (4000, 4000)
    assert second["cpu_peak_bytes"] == 4_004_000
    assert third["cpu_peak_bytes"] == 4000


def test_a_forked_child_has_its_own_account(recording):
    done = recording('''
import os, torch, lowtide
from lowtide import _bootstrap
x = torch.zeros(1000)
pid = os.fork()
if pid == 0:
    assert _bootstrap.track.figures()["cpu_bytes"] == 0
    y = torch.zeros(10)
    del x
    assert _bootstrap.track.figures()["cpu_bytes"] == 40
    lowtide.step()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert _bootstrap.track.figures()["cpu_bytes"] == 4000
lowtide.step()
''')
    assert done.returncode == 0, done.stderr
    found = recording.rings()
    assert sorted(found) == ["rank0.2.ring", "rank0.ring"]
    by_parent = {ring.steps()[0]["cpu_bytes"] for ring in found.values()}
    assert by_parent == {40, 4000}
