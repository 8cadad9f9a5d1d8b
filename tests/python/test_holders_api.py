"""lowtide.why, lowtide.holders and the pytest mark."""
import gc
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("lowtide._walk", reason="the extension lowtide._walk is not built for this interpreter")
import lowtide  # noqa: E402

SHELF = {"kept": []}


class Owner:
    def __init__(self):
        self.batches = []


def test_why_names_the_path_and_the_line():
    value = torch.zeros(3)
    SHELF["kept"].append(value)
    del value
    answer = lowtide.why(SHELF["kept"][0])
    assert answer.paths[0].endswith("SHELF['kept'][*]")
    assert 'SHELF["kept"].append(value)' in str(answer)
    SHELF["kept"].clear()


def test_why_shows_every_holder():
    owner, value = Owner(), torch.zeros(3)
    owner.batches.append(value)
    paths = lowtide.why(value).paths
    assert "value" in paths and "owner.batches[*]" in paths


def test_why_goes_through_the_graph():
    weight = torch.ones(3, requires_grad=True)
    kept = [(weight * torch.ones(3)).sum()]
    product = kept[0].grad_fn.next_functions[0][0]
    answer = lowtide.why(product)
    assert any("grad_fn" in path or path.startswith("kept") for path in answer.paths), answer.paths


def test_holders_names_what_came_in_since_the_last_call():
    owner = Owner()
    lowtide.holders()
    for _ in range(20):
        owner.batches.append(torch.zeros(1000))
    rows = lowtide.holders()
    assert rows[0]["path"] == "owner.batches[*]"
    assert rows[0]["growth_bytes"] >= 20 * 4000
    assert not any("batches" in row["path"] for row in lowtide.holders())


def test_the_collector_is_left_as_it_was():
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        before = gc.get_threshold(), gc.isenabled()
        lowtide.holders()
        assert (gc.get_threshold(), gc.isenabled()) == before
    gc.enable()


def test_nothing_is_kept_alive_by_a_census():
    import weakref

    class Thing:
        pass

    thing = Thing()
    held = [thing]
    lowtide.holders()
    lowtide.why(thing)
    lowtide.holders()
    gone = weakref.ref(thing)
    assert held.pop() is thing
    del thing
    assert gone() is None


TESTS = '''
import pytest, torch

HISTORY = []

@pytest.fixture
def weight():
    return torch.ones(512, requires_grad=True)

@pytest.mark.lowtide(no_leak=True, steps=30)
def test_leaks(weight):
    HISTORY.append((weight * 2).sum())

@pytest.mark.lowtide(no_leak=True, steps=30)
def test_does_not(weight):
    (weight * 2).sum().backward()

def test_loop_leaks(lowtide_steps):
    outputs = []
    for step in lowtide_steps(30):
        outputs.append(torch.zeros(512))

def test_loop_does_not(lowtide_steps):
    outputs = []
    for step in lowtide_steps(30):
        outputs = outputs[-3:] + [torch.zeros(512)]
'''


def test_the_pytest_mark_fails_tests_that_leak(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    registered = any(point.value == "lowtide.pytest_plugin" for point in entry_points(group="pytest11"))
    plugin = [] if registered else ["-p", "lowtide.pytest_plugin"]  # a developer's tree registers nothing
    done = subprocess.run([sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "-q", str(tmp_path)],
                          capture_output=True, text=True, timeout=300)
    assert "2 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "HISTORY[*]" in done.stdout and "outputs[*]" in done.stdout
    assert "HISTORY.append((weight * 2).sum())" in done.stdout
