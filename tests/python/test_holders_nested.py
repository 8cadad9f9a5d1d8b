"""Who holds it, where the growth lies in objects of an epoch, or in a state that a model hands from call to call."""
import pytest
from growing import both_ways, grown, tensor, torch  # noqa: F401


class EpochStats:
    def __init__(self):
        self.logits = []


def test_an_object_per_epoch_is_told_by_the_list_in_it():
    stats, done = {}, [0]

    def step():
        epoch, done[0] = done[0] // 15, done[0] + 1
        if epoch not in stats:
            stats[epoch] = EpochStats()
        stats[epoch].logits.append(tensor())

    row = grown(step, steps=31)[0]
    assert row["path"] == "stats[*].logits[*]"
    with open(__file__) as source:
        assert "logits.append" in source.read().splitlines()[row["line"] - 1]
    assert row["bytes_per_step"] == pytest.approx(1024, rel=0.5)


def test_a_dict_per_epoch_is_told_by_the_list_in_it():
    epochs, done = [], [0]

    def step():
        if done[0] % 15 == 0:
            epochs.append({"loss": [], "outputs": []})
        done[0] += 1
        epochs[-1]["loss"].append(0.5)
        epochs[-1]["outputs"].append(tensor())

    row = grown(step, steps=31)[0]
    assert row["path"] in ("epochs[*]['outputs'][*]", "epochs[*][*][*]")
    with open(__file__) as source:
        assert '["outputs"].append' in source.read().splitlines()[row["line"] - 1]


def test_an_object_per_step_is_told_by_the_list_of_objects():
    results = []

    def step():
        one = EpochStats()
        one.logits.extend([tensor() for _ in range(6)])
        results.append(one)

    row = grown(step)[0]
    assert row["path"] == "results[*]"


def test_a_state_carried_through_an_lstm_is_told_not_the_step_that_was_given_back():
    lstm, out = torch.nn.LSTM(16, 16, batch_first=True), torch.nn.Linear(16, 8)
    parameters = [*lstm.parameters(), *out.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    kept = {"state": None}

    def step():
        logits, _ = lstm(torch.randn(4, 8, 16))
        loss = out(logits).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        _, kept["state"] = lstm(torch.randn(1, 1, 16), kept["state"])

    row = next(row for row in grown(step, steps=40) if row["path"] != "unattributed")
    assert row["path"].startswith("kept['state']") and row["via_autograd"]


def test_hooks_of_a_parameter_are_told_with_the_call_that_adds_them():
    weight = torch.nn.Parameter(torch.ones(4))

    def step():
        payload = tensor()
        weight.register_hook(lambda grad: grad * payload[0])  # the line

    row = grown(step)[0]
    assert row["path"].endswith("._backward_hooks[*]")
    with open(__file__) as source:
        assert "# the line" in source.read().splitlines()[row["line"] - 1]
