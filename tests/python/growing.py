"""What the tests of holders share: what grows between two censuses while a step is repeated."""
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: holders of tensors cannot be tried")
pytest.importorskip("lowtide._walk", reason="the extension lowtide._walk is not built for this interpreter")
from lowtide._census import Census  # noqa: E402

STEPS = 30


def tensor():
    return torch.zeros(256)


def grown(step, steps=STEPS, warm_up=10):
    """The holders that grew in `steps` calls of `step`, the first that grew most."""
    census = Census()
    for _ in range(warm_up):
        step()
    assert census.first(0), census.trouble
    for _ in range(steps):
        step()
    rows = census.second(steps)
    assert census.trouble is None, census.trouble
    return rows


def text(row):
    return f"{row['path']} {row['root']}"


class Kinds(dict):
    """Kinds of holders by name; as a decorator it takes a function that makes one."""

    def __call__(self, function):
        self[function.__name__] = function
        return function
