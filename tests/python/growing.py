"""What the tests of holders share: what grows between two censuses while a step is repeated."""
import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: holders of tensors cannot be tried")
pytest.importorskip("lowtide._walk", reason="the extension lowtide._walk is not built for this interpreter")
from lowtide import _census  # noqa: E402
from lowtide._census import Census  # noqa: E402

STEPS = 30
pauses = 1  # of the second census


def tensor():
    return torch.zeros(256)


@pytest.fixture(params=[1, 2], ids=["one_pause", "two_pauses"], autouse=True)
def both_ways(request):
    """A module of tests that imports this tries the second census in both ways."""
    global pauses
    pauses = request.param
    yield
    pauses = 1


def grown(step, steps=STEPS, warm_up=10):
    """The holders that grew in `steps` calls of `step`, the first that grew most."""
    census = Census()
    for _ in range(warm_up):
        step()
    assert census.first(0), census.trouble
    for _ in range(steps):
        step()
    if pauses == 1:
        census.second(steps)
    else:
        second_in_two_pauses(census, steps, step)
    assert census.trouble is None, census.trouble
    return census.rows


def second_in_two_pauses(census, steps, step):
    """As large processes are treated: the program goes on while the second mark is compared with the first."""
    before, _census._TWO_PAUSES_FROM = _census._TWO_PAUSES_FROM, 0
    try:
        ready = census.begin(steps)
    finally:
        _census._TWO_PAUSES_FROM = before
    assert ready is not None, census.trouble
    for _ in range(3):
        step()
    while not ready():
        time.sleep(0.001)
    census.finish()


def text(row):
    return f"{row['path']} {row['root']}"


class Kinds(dict):
    """Kinds of holders by name; as a decorator it takes a function that makes one."""

    def __call__(self, function):
        self[function.__name__] = function
        return function
