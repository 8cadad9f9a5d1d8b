"""What is blamed for a value that is not finite, and what is not: operands without a gradient, sound matrix products, squares."""
import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from gradient_loops import found, guard, loop, mlp  # noqa: E402, F401

STEP = 30


def train(loss_of, model=None, steps=40):
    model = model or mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loop(model, optimizer, steps, loss_of=loss_of, before=lambda step: optimizer.zero_grad())


def this_line(text):
    with open(__file__, encoding="utf-8") as file:
        return [n for n, line in enumerate(file, 1) if text in line and "this_line" not in line]


def labels(x, step):
    y = x.sum(1, keepdim=True)
    if step == STEP:
        y[3] = math.nan
    return y


def mean_squares(model, x, step):
    return F.mse_loss(model(x), labels(x, step))  # mean squares


def difference(model, x, step):
    return ((model(x) - labels(x, step)) ** 2).mean()  # difference


def cross_entropy(model, x, step):
    return F.binary_cross_entropy_with_logits(model(x), labels(x, step).clamp(0, 1))  # cross entropy


def advantages(model, x, step):
    reward = torch.ones(16, 1) if step == STEP else torch.rand(16, 1)
    advantage = (reward - reward.mean()) / reward.std()
    return -(F.logsigmoid(model(x)) * advantage).mean()  # advantages


def class_weights(model, x, step):
    weight = torch.tensor([1.0, math.inf if step == STEP else 2.0])
    out = model(x)
    return F.cross_entropy(torch.cat([out, -out], 1), torch.arange(16) % 2, weight=weight)  # class weights


@pytest.mark.parametrize("loss_of, marker", [(class_weights, "# class weights"), (mean_squares, "# mean squares"), (difference, "# difference"),
                                             (cross_entropy, "# cross entropy"), (advantages, "# advantages")])
def test_what_has_no_gradient_came_from_outside(guard, loss_of, marker):  # noqa: F811
    train(loss_of)
    (item,) = found(guard, "LT505")
    assert "came in with the data, or with another tensor that has no gradient" in item["message"], item["message"]
    assert item["where"][0]["line"] in this_line(marker), item
    assert "labels" in item["help"]


def distance_and_penalty(model, x, step):
    gap = model(x) - model(x if step == STEP else x + 1)
    distance = torch.sqrt((gap ** 2).sum(1)).mean()  # a slope without end
    return distance + 1e-4 * sum((p ** 2).sum() for p in model.parameters())


def test_squares_are_not_blamed_for_what_a_root_did(guard):  # noqa: F811
    train(distance_and_penalty)
    (item,) = found(guard, "LT505")
    assert "made by sqrt" in item["message"], item["message"]
    assert item["where"][0]["line"] in this_line("# a slope without end"), item


def test_weights_that_were_not_sound_from_the_start(guard):  # noqa: F811
    words = nn.Embedding(100, 12)
    with torch.no_grad():
        words.weight[77] = math.nan
    model = nn.Sequential(words, nn.Flatten(), nn.Linear(24, 1))
    train(lambda net, x, step: net(torch.full((16, 2), 77 if step == STEP else 5)).square().mean(), model)
    (item,) = found(guard, "LT505")
    assert "12 of its 1,200 values" in item["message"] and "as it was made or loaded" in item["message"], item["message"]


def test_after_an_explosion_the_explosion_is_what_to_cure(guard):  # noqa: F811
    train(lambda net, x, step: net(x).square().mean() * min(1e300, 1e9 ** max(0, step - 25)), steps=60)
    (item,) = found(guard, "LT505")
    assert "the explosion came first" in item["help"], item
    assert found(guard, "LT503")


def scheduled(steps, factor_at):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor_at)
    loop(model, optimizer, steps, before=lambda step: (optimizer.zero_grad(), schedule.step() if step else None))


def test_a_schedule_that_ends_long_before_the_run(guard):  # noqa: F811
    scheduled(300, lambda step: max(0.0, 1 - step / 60))
    (item,) = found(guard)
    assert item["code"] == "LT510" and item["severity"] == "warning"
    assert "since step 6" in item["message"] and "total_iters" in item["help"], item["message"]


def test_a_warm_up_from_zero_and_a_schedule_to_zero_are_quiet(guard):  # noqa: F811
    scheduled(300, lambda step: min(step / 20, 1 - step / 299))
    assert not found(guard), found(guard)


def test_steps_without_a_reward_are_quiet(guard):  # noqa: F811
    train(lambda net, x, step: net(x).mean() * (step % 9 == 8), steps=120)
    assert not found(guard), found(guard)


def test_gradients_divided_by_tokens_are_quiet(guard):  # noqa: F811
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(80):
        tokens = 0
        for _ in range(4):
            x = torch.randn(16, 12)
            F.mse_loss(model(x), x.sum(1, keepdim=True), reduction="sum").backward()
            tokens += len(x)
        for p in model.parameters():
            p.grad /= tokens
        optimizer.step()
        optimizer.zero_grad()
    assert not found(guard), found(guard)
