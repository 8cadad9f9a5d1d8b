"""What is found in scripts that do not know of lowtide: small faulty loops and their healthy twins."""
import json
import math
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import gradient_loops  # noqa: E402
from gradient_loops import found, guard, loop, mlp  # noqa: E402, F401
from lowtide import _autoguard  # noqa: E402


def this_line(text, path=__file__):
    with open(path, encoding="utf-8") as file:
        return [n for n, line in enumerate(file, 1) if text in line and "this_line" not in line]


@pytest.mark.parametrize("kind", ["zero_grad", "model", "not_to_none", "by_hand"])
def test_cleared_gradients_are_quiet(guard, kind):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def clear(step):
        if kind == "zero_grad":
            optimizer.zero_grad()
        elif kind == "model":
            model.zero_grad()
        elif kind == "not_to_none":
            optimizer.zero_grad(set_to_none=False)
        else:
            for parameter in model.parameters():
                parameter.grad = None

    loop(model, optimizer, 60, before=clear)
    assert not found(guard)


def test_missing_zero_grad(guard):
    model = mlp()
    loop(model, torch.optim.SGD(model.parameters(), lr=0.001), 60)
    (item,) = found(guard, "LT501")
    assert item["severity"] == "error" and "zero_grad" in item["message"]
    assert item["where"][0]["line"] in this_line("loss.backward()", gradient_loops.__file__)


def test_zero_grad_only_now_and_then(guard):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loop(model, optimizer, 60, before=lambda step: optimizer.zero_grad() if step % 4 == 0 else None)
    assert found(guard, "LT501")


def test_zero_grad_of_another_model(guard):
    model, other = mlp(), mlp()
    loop(model, torch.optim.SGD(model.parameters(), lr=0.001), 60, before=lambda step: other.zero_grad())
    assert found(guard, "LT501")


def test_clip_does_not_hide_a_missing_zero_grad(guard):
    model = mlp()
    loop(model, torch.optim.SGD(model.parameters(), lr=0.001), 60,
         after=lambda step: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1))
    assert found(guard, "LT501")


def test_zero_grad_between_backward_and_step(guard):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loop(model, optimizer, 60, after=lambda step: optimizer.zero_grad())
    (item,) = found(guard, "LT509")
    assert item["where"][0]["file"] == gradient_loops.__file__ and item["where"][0]["line"]
    assert "zero_grad" in item["message"]


def test_gan_with_two_optimizers_is_quiet(guard):
    generator, judge = mlp(), mlp(1)
    first = torch.optim.Adam(generator.parameters(), lr=1e-3)
    second = torch.optim.Adam(judge.parameters(), lr=1e-3)
    for _ in range(80):
        fake = generator(torch.randn(16, 12))
        second.zero_grad()
        loss = F.softplus(judge(fake.detach())).mean() + F.softplus(-judge(torch.randn(16, 1))).mean()
        loss.backward()
        second.step()
        first.zero_grad()
        F.softplus(-judge(fake)).mean().backward()  # leaves gradients in `judge`; its next zero_grad clears them
        first.step()
    assert not found(guard)


def test_lbfgs_with_a_closure_is_quiet(guard):
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    x = torch.randn(32, 12)
    for _ in range(12):
        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
            loss.backward()
            return loss
        optimizer.step(closure)
    assert not found(guard)


def accumulate(model, count, scaled, divide_gradients=False, clip=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(120):
        x = torch.randn(16, 12)
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        if scaled:
            loss = loss / count
        loss.backward()  # accumulating
        if (step + 1) % count == 0:
            if divide_gradients:
                for parameter in model.parameters():
                    parameter.grad.div_(count)
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()


def test_unscaled_accumulation(guard):
    accumulate(mlp(), 4, scaled=False)
    (item,) = found(guard)
    assert item["code"] == "LT502" and item["severity"] == "warning" and "divided by 4" in item["message"]
    assert item["where"][0]["line"] in this_line("loss.backward()  # accumulating")


@pytest.mark.parametrize("how", [{"scaled": True}, {"scaled": False, "divide_gradients": True}, {"scaled": True, "clip": 0.1}])
def test_scaled_accumulation_is_quiet(guard, how):
    accumulate(mlp(), 4, **how)
    assert not found(guard)


def test_two_losses_per_step_are_no_accumulation(guard):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(40):
        x = torch.randn(16, 12)
        optimizer.zero_grad()
        F.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        model(x).abs().mean().backward()
        optimizer.step()
    assert not found(guard)


def nan_of_log(model, x, step):
    p = torch.sigmoid(model(x) - (1e4 if step == 30 else 0))
    return -torch.log(p).mean()  # breaks


def nan_of_division(model, x, step):
    weights = (torch.rand(16, 1) > (2.0 if step == 30 else 0.5)).float()
    return (model(x) ** 2 * weights).sum() / weights.sum()  # splits


def inf_of_exp(model, x, step):
    return torch.exp(model(x) * (1e4 if step == 30 else 1)).mean()  # overflows


def nan_of_variance(model, x, step):
    return model(x[:1] if step == 30 else x).var(dim=0).sum()  # one sample


@pytest.mark.parametrize("loss_of, op, marker", [
    (nan_of_log, "log", "# breaks"), (nan_of_division, "div", "# splits"), (inf_of_exp, "exp", "# overflows"),
    (nan_of_variance, "var", "# one sample")])
def test_first_operation_that_was_not_finite(guard, loss_of, op, marker):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loop(model, optimizer, 40, loss_of=loss_of, before=lambda step: optimizer.zero_grad())
    (item,) = found(guard, "LT505")
    assert f"made by {op}" in item["message"] and "at step 31" in item["message"], item["message"]
    assert item["where"][0]["line"] in this_line(marker), item


def distance(model, x, step):
    gap = model(x) - model(x if step == 30 else x + 1)
    return torch.sqrt((gap ** 2).sum(1)).mean()  # slope at zero


def test_finite_loss_with_an_infinite_slope(guard):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loop(model, optimizer, 40, loss_of=distance, before=lambda step: optimizer.zero_grad())
    (item,) = found(guard, "LT505")
    assert "sqrt" in item["message"] and item["where"][0]["line"] in this_line("# slope at zero"), item


def test_nan_in_the_data(guard):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loss_of(net, x, step):
        if step == 30:
            x[3, 4] = math.nan
        return net(x).mean()

    loop(model, optimizer, 40, loss_of=loss_of, before=lambda step: optimizer.zero_grad())
    (item,) = found(guard, "LT505")
    assert "with the data" in item["message"]


def test_skipping_bad_losses_is_the_users_choice(guard):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(40):
        loss = nan_of_log(model, torch.randn(16, 12), step)
        optimizer.zero_grad()
        if torch.isfinite(loss):
            loss.backward()
            optimizer.step()
    assert not found(guard)


def test_exploding(guard):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loop(model, optimizer, 60, before=lambda step: optimizer.zero_grad(),
         loss_of=lambda net, x, step: (net(x) * (1e4 if step > 50 else 1)).pow(2).mean())
    (item,) = found(guard, "LT503")
    assert "model.4" in item["message"]


def test_large_but_steady_norms_are_quiet(guard):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-8)
    loop(model, optimizer, 60, before=lambda step: optimizer.zero_grad(),
         loss_of=lambda net, x, step: (net(x) - x.sum(1, keepdim=True)).pow(2).sum() * 100)
    assert not found(guard)


def sigmoids():
    layers = [nn.Linear(12, 16)]
    for _ in range(14):
        layers += [nn.Sigmoid(), nn.Linear(16, 16)]
    return nn.Sequential(*layers, nn.Sigmoid(), nn.Linear(16, 1))


def test_layers_that_an_explosion_saturated_are_not_told_as_well(guard):
    model = sigmoids()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)
    loop(model, optimizer, 120, before=lambda step: optimizer.zero_grad(),
         loss_of=lambda net, x, step: F.mse_loss(net(x), x.sum(1, keepdim=True)) * (1e6 if step < 3 else 1))
    assert [item["code"] for item in found(guard)] == ["LT503"]


def test_vanishing(guard):
    model = sigmoids()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loop(model, optimizer, 120, before=lambda step: optimizer.zero_grad())
    (item,) = found(guard, "LT504")
    assert "model.0.weight" in item["message"] and item["severity"] == "warning"


def test_dead_units(guard):
    model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 1))
    with torch.no_grad():
        model[0].bias[:30] = -100.0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loop(model, optimizer, 160, before=lambda step: optimizer.zero_grad())
    (item,) = found(guard)
    assert item["code"] == "LT507" and "model.0.bias (30 of 40)" in item["message"]


class Detached(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(12, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).detach())


def test_parameters_that_never_get_a_gradient(guard):
    model = Detached()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loop(model, optimizer, 60, before=lambda step: optimizer.zero_grad())
    (item,) = found(guard)
    assert item["code"] == "LT506" and "model.body.weight" in item["message"]


def test_parameters_that_no_optimizer_has(guard):
    model, extra = mlp(), nn.Linear(12, 12)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loop(model, optimizer, 60, before=lambda step: optimizer.zero_grad(), loss_of=lambda net, x, step: net(extra(x)).mean())
    (item,) = found(guard)
    assert item["code"] == "LT506" and "no optimizer" in item["message"]


def test_a_constant_that_requires_grad(guard):
    model, scale = mlp(), torch.ones(12, requires_grad=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loop(model, optimizer, 60, before=lambda step: optimizer.zero_grad(), loss_of=lambda net, x, step: net(x * scale).mean())
    (item,) = found(guard)
    assert item["code"] == "LT508"


def test_converged_training_is_quiet(guard):
    model = nn.Linear(12, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop(model, optimizer, 300, before=lambda step: optimizer.zero_grad(),
         loss_of=lambda net, x, step: F.mse_loss(net(x), x.sum(1, keepdim=True)))
    assert not found(guard)


def test_exceptions_of_the_user_pass_through(guard):
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.zeros(1).backward()


def test_a_failure_inside_switches_it_off():
    made, detach = _autoguard.attach(torch)
    try:
        made.events = None
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        loop(model, optimizer, 5, before=lambda step: optimizer.zero_grad())
        assert not made.alive and "AttributeError" in made.failure
    finally:
        detach()


def test_holds_nothing_of_the_users(guard):
    import gc
    import weakref

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loop(model, optimizer, 30, before=lambda step: optimizer.zero_grad())
    watched = [weakref.ref(p) for p in model.parameters()]
    gradients = [weakref.ref(p.grad) for p in model.parameters()]
    del model, optimizer
    gc.collect()
    assert not [r for r in watched + gradients if r() is not None]


def test_findings_reach_the_run_folder(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import torch\nimport lowtide._autoguard as g\nassert g.install() and g.install()\n"
                      "m = torch.nn.Linear(4, 4)\no = torch.optim.SGD(m.parameters(), lr=1e-3)\n"
                      "for _ in range(20):\n    m(torch.randn(4, 4)).pow(2).mean().backward()\n    o.step()\n")
    import lowtide

    package = os.path.dirname(list(lowtide.__path__)[0])
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True,
                          env={**os.environ, "LOWTIDE_RUN_DIR": str(tmp_path), "RANK": "3", "PYTHONPATH": package})
    assert done.returncode == 0 and done.stdout == "" and done.stderr == "", done.stderr
    lines = [json.loads(line) for line in (tmp_path / "findings-rank3.jsonl").read_text().splitlines()]
    last = {line["fingerprint"]: line for line in lines}
    assert [f["code"] for f in last.values()] == ["LT501"]
    assert last.popitem()[1]["where"][0]["line"] == 7
