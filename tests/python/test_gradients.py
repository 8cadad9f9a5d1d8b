"""The pass over gradients, the clip and its limit, against PyTorch's own."""
import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402

from lowtide import gradients_scan  # noqa: E402
from lowtide.gradients import AdaptiveLimit, Gradients  # noqa: E402
from lowtide.gradients_scan import scale, scan  # noqa: E402


@pytest.fixture(autouse=True)
def pytorch_as_found():
    """A check that saw a NaN waits for the next forward with PyTorch's tracebacks on; no forward follows here."""
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    yield
    torch.set_anomaly_enabled(*before)


def with_gradient(gradient):
    parameter = nn.Parameter(torch.zeros(gradient.shape, dtype=gradient.dtype))
    parameter.grad = gradient
    return parameter


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [0, 1, 5, 31, 32, 63, 64, 100, 4095, 4096, 4097, 20000])
def test_figures(dtype, size):
    torch.manual_seed(size)
    gradient = torch.randn(size).to(dtype)
    gradient[::7] = 0
    (row,) = scan([with_gradient(gradient)]).rows()
    _, norm, largest, zeros, nans, infinities = row
    assert norm == pytest.approx(gradient.double().norm().item(), rel=1e-6)
    assert largest == (gradient.double().abs().max().item() if size else 0)
    assert (zeros, nans, infinities) == ((gradient == 0).sum().item(), 0, 0)
    if size > 4:
        gradient[1], gradient[size - 1], gradient[2] = math.nan, -math.inf, math.inf
        found = scan([with_gradient(gradient)])
        assert found.damaged == 1 and math.isnan(found.total_norm) and list(next(found.rows())[4:]) == [1, 2]


@pytest.mark.parametrize("value", [1e20, 1e-25, 3e38, 1e-40])
def test_magnitudes_whose_squares_leave_float(value):
    gradient = torch.full((10000,), value)
    assert scan([with_gradient(gradient)]).total_norm == pytest.approx(gradient.double().norm().item(), rel=1e-6)


def test_half_precision_subnormals_and_extremes():
    gradient = torch.tensor([6e-8, 65504.0, -6.1e-5, 0.0] * 20, dtype=torch.float16)
    (row,) = scan([with_gradient(gradient)]).rows()
    assert row[1] == pytest.approx(gradient.double().norm().item(), rel=1e-6) and row[2] == 65504.0 and row[3] == 20


@pytest.mark.parametrize("make", [lambda: torch.randn(30, 40).t(), lambda: torch.randn(50, 50)[:, ::2], lambda: torch.randn(40, 40).to_sparse(),
                                  lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), lambda: torch.tensor(3.0),
                                  lambda: torch.randn(1).expand(64)])
def test_layouts(make):
    torch.manual_seed(0)
    gradient = make()
    dense = gradient.to_dense() if gradient.is_sparse else gradient
    parameter = nn.Parameter(torch.zeros(gradient.shape))
    parameter.grad = gradient
    assert scan([parameter, with_gradient(torch.ones(9))]).total_norm == pytest.approx(math.sqrt(dense.double().norm().item() ** 2 + 9), rel=1e-6)


def test_the_other_path_agrees(monkeypatch):
    """What devices use (two fused kernels, one transfer) says the same as the native pass."""
    torch.manual_seed(0)
    group = [with_gradient(torch.randn(n)) for n in (1, 100, 5000)] + [with_gradient(torch.full((99,), 1e30))]
    native = scan(group)
    monkeypatch.setattr(gradients_scan, "_guard", None)
    other = scan(group)
    assert other.total_norm == pytest.approx(native.total_norm, rel=1e-6)
    for a, b in zip(native.rows(), other.rows()):
        assert a[1] == pytest.approx(b[1], rel=1e-6) and a[2] == b[2]
    group[1].grad[3] = math.nan
    group[2].grad[3] = math.inf
    assert scan(group).damaged == 2


@pytest.mark.parametrize("mixed", [False, True])
def test_clip_equals_pytorchs(mixed):
    def group():
        torch.manual_seed(1)
        return [with_gradient(torch.randn(s, dtype=torch.float64 if mixed and i == 1 else torch.float32)) for i, s in enumerate([(40, 40), (7,), (3, 3, 3)])]
    ours, theirs = group(), group()
    norm = torch.nn.utils.clip_grad_norm_(theirs, 1.0)
    versions = [p.grad._version for p in ours]
    report = Gradients(ours).clip()
    assert report.total_norm == pytest.approx(float(norm), rel=1e-6) and report.clipped_to == 1.0
    for a, b in zip(ours, theirs):
        assert torch.allclose(a.grad, b.grad, rtol=1e-5)
    assert all(p.grad._version > v for p, v in zip(ours, versions))


def test_below_the_limit_nothing_is_written():
    parameter = with_gradient(torch.full((100,), 1e-3))
    version = parameter.grad._version
    report = Gradients([parameter]).clip()
    assert report.clipped_to is None and parameter.grad._version == version


def test_non_finite_is_left_alone_and_named():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    model[1].weight.grad[0, 1] = math.inf
    report = Gradients(model).clip()
    assert not report.finite and report.nonfinite == ["1.weight"] and report.clipped_to is None
    assert float(model[0].weight.grad[0, 0]) == 1.0


def test_a_report_keeps_no_gradient():
    import weakref

    parameter = with_gradient(torch.ones(10))
    report = Gradients([parameter]).clip()
    gone = weakref.ref(parameter.grad)
    parameter.grad = None
    assert gone() is None and report.rows[0].norm == pytest.approx(math.sqrt(10))


def test_limit_comes_down_on_oscillation_and_up_when_calm():
    limit = AdaptiveLimit(1.0)
    for step in range(200):
        limit.feed(1.0 + 0.01 * math.sin(step))
    assert limit.current == 1.0
    for step in range(60):
        limit.feed(2.0 if step % 2 else 1.0)
    assert limit.current == 0.25 and limit.lowered >= 2
    state = limit.state_dict()
    other = AdaptiveLimit(1.0)
    other.load_state_dict(state)
    for step in range(400):
        limit.feed(1.0 + 0.01 * math.sin(step))
        other.feed(1.0 + 0.01 * math.sin(step))
    assert limit.current == other.current == 1.0


def test_steady_noise_does_not_lower_the_limit():
    torch.manual_seed(0)
    limit = AdaptiveLimit(1.0)
    for _ in range(2000):
        limit.feed(1.0 + 0.3 * float(torch.rand(1)))
    assert limit.current == 1.0


def test_scale_of_shared_types():
    group = [with_gradient(torch.ones(5, dtype=torch.bfloat16)), with_gradient(torch.ones(5)), with_gradient(torch.ones(4, 4).to_sparse())]
    scale(scan(group), 0.5)
    assert all(float(p.grad.to_dense().flatten()[0] if p.grad.is_sparse else p.grad[0]) == 0.5 for p in group)


@pytest.mark.parametrize("bad", [0, -1.0])
def test_bad_limits(bad):
    with pytest.raises(ValueError, match="clip must be"):
        Gradients(nn.Linear(1, 1), clip=bad)


def test_native_pass_refuses_nonsense():
    guard = gradients_scan._guard
    with pytest.raises(ValueError):
        guard.scan([0], [5], [0], bytearray(40))
    with pytest.raises(ValueError):
        guard.scan([1], [0], [9], bytearray(40))
    with pytest.raises(ValueError):
        guard.scan([], [1], [], bytearray(40))
    with pytest.raises(ValueError):
        guard.scan([1], [0], [0], bytearray(8))
