"""The second census of a large process: the program goes on while its arithmetic is done, and only what is still there is told."""
import gc
import json
import os
import signal
import time

import pytest
from growing import _census, tensor, text, torch

from lowtide import _walk


@pytest.fixture(autouse=True)
def always(monkeypatch):
    monkeypatch.setattr(_census, "_TWO_PAUSES_FROM", 0)


def begun(step, steps=30):
    census = _census.Census()
    for _ in range(5):
        step()
    assert census.first(0), census.trouble
    for _ in range(steps):
        step()
    return census, census.begin(steps)


def finished(census, ready):
    while not ready():
        time.sleep(0.001)
    census.finish()
    assert census.trouble is None or "was gone" in census.trouble, census.trouble
    return [text(row) for row in census.rows]


def test_an_attribute_that_gets_another_object_each_step():
    class State:
        total = torch.zeros((), requires_grad=True)

    state = State()

    def step():
        state.total = state.total + tensor().sum()

    census, ready = begun(step)
    for _ in range(20):
        step()
    assert "state.total" in finished(census, ready)[0]


def test_what_is_gone_by_then_is_not_told():
    kept, lost = [], []

    def step():
        kept.append(tensor())
        lost.append({"x": [tensor()], "make": type("Made", (), {"t": tensor()})})

    census, ready = begun(step)
    del lost
    gc.collect()
    junk = [bytearray(64) for _ in range(1000)]  # memory is used anew
    rows = finished(census, ready)
    assert len(junk) == 1000 and any("kept[*]" in row for row in rows)
    assert not any("lost" in row for row in rows), rows


def test_what_has_been_emptied_by_then_is_not_told():
    kept, batch = [], {"items": []}

    def step():
        kept.append(tensor())
        batch["items"].append([tensor(), tensor()])

    census, ready = begun(step)
    batch["items"].clear()
    rows = finished(census, ready)
    assert any("kept[*]" in row for row in rows) and not any("batch" in row for row in rows), rows


def test_a_function_that_has_returned_by_then_is_not_told():
    census = _census.Census()

    def work():
        inner, elsewhere = [], []
        assert census.first(0), census.trouble
        for _ in range(30):
            inner.append(tensor())
            elsewhere.append([tensor()])
        return census.begin(30), elsewhere

    ready, elsewhere = work()
    rows = finished(census, ready)
    assert elsewhere and not any("inner" in row for row in rows), rows


def test_a_function_that_is_called_again_is_another_call():
    census, begun_in = _census.Census(), []

    def work(grow):
        outputs = []
        if grow:
            assert census.first(0), census.trouble
            for _ in range(30):
                outputs.append(tensor())
            begun_in.append(census.begin(30))
            return None
        return finished(census, begun_in[0])

    work(True)
    rows = work(False)
    assert not any("outputs" in row for row in rows), rows


def test_a_neighbour_does_not_take_the_name_of_what_was_deleted():
    class Model:
        def __init__(self):
            self.history, self.names = [], []

    model = Model()
    table = {"done": [], "open": []}

    def step():
        model.history.append(tensor())
        table["done"].append(tensor())

    census, ready = begun(step)
    del model.history, table["done"]
    rows = finished(census, ready)
    assert not any("names" in row or "table" in row or "model" in row for row in rows), rows
    assert "was gone" in census.trouble


def test_a_longer_way_is_told_when_the_shorter_one_is_gone():
    class Owner:
        pass

    owner = Owner()
    owner.inner = Owner()
    owner.inner.store = []
    census = _census.Census()

    def epoch(store):
        assert census.first(0), census.trouble
        for _ in range(30):
            store.append(tensor())
        return census.begin(30)

    ready = epoch(owner.inner.store)
    rows = finished(census, ready)
    assert any("owner.inner.store[*]" in row for row in rows), rows


def test_it_may_be_forgotten_while_it_is_under_way():
    held, census = [], _census.Census()
    assert census.first(0), census.trouble
    held += [tensor() for _ in range(30)]
    assert census.begin(30) is not None, census.trouble
    census.pending = None
    rows = census.second(30)  # the first mark is as it was
    assert census.trouble is None and text(rows[0]).startswith("held[*]"), text(rows[0])


def test_a_forked_child_neither_waits_nor_tells():
    held = []
    census, ready = begun(lambda: held.append(tensor()))
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        lost = census.pending.ready()
        census.finish()  # done before the fork, or not to be had here
        os._exit(0 if lost and (census.rows or "parent process" in census.trouble) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert "held[*]" in finished(census, ready)[0]


def test_it_is_told_once():
    mark = _walk.take(True)
    pending = _walk.compare_later(mark, 1, 8, True)
    heap, rows, gone = pending.finish()
    assert isinstance(rows, list) and gone >= 0 and heap.info()["objects"] > 0 and pending.ready()
    with pytest.raises(RuntimeError):
        pending.finish()


def test_a_forked_child_that_ends_leaves_its_parents_file_alone(record):
    """The parent's second mark is under way as the child ends in the ordinary way."""
    done, _, folder = record(PROGRAM + """
    from lowtide import _census
    if _census.census.pending is not None and not done_once:
        import os, sys
        done_once.append(1)
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        print("forked", os.getpid())
""")
    assert done.returncode == 0, done.stderr
    documents = [json.loads(path.read_text()) for path in folder.glob("holders-rank*.json")]
    assert len(documents) == 1 and documents[0]["trouble"] is None
    assert documents[0]["holders"] and str(documents[0]["pid"]) == done.stdout.split()[1]


PROGRAM = """
import torch
model = torch.nn.Linear(8, 8)
opt = torch.optim.SGD(model.parameters(), 0.01)
shelf = [{"row": [i, [str(i)]]} for i in range(200_000)]
history, done_once = [], []
for step in range(1500):
    loss = model(torch.randn(4, 8)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    history.append(torch.zeros(5_000))  # here
"""


def test_a_large_process_under_run(record):
    done, found, folder = record(PROGRAM)
    assert done.returncode == 0, done.stderr
    holder = found["holders"][0]
    assert "history" in holder["path"], found["holders"][:3]
    document = json.loads((folder / "holders-rank0.json").read_text())
    assert document["trouble"] is None and document["census"]["objects"] > 500_000
    assert len(document["pauses_seconds"]) == 3, "first mark, second mark, labels"
