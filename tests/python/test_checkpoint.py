"""Checkpoints: what is stored comes back exactly; triggers, keeping, lenient loads, imports, the command."""
import collections
import json
import math
import os
import random
import shutil
import subprocess
import time

import pytest
from hypothesis import given, settings, strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402

import lowtide  # noqa: E402
from lowtide import checkpoint_store as store  # noqa: E402
from lowtide.checkpoint import Checkpointer, CheckpointError  # noqa: E402
from lowtide.checkpoint_file import read_file, write_file  # noqa: E402
from lowtide.checkpoint_import import import_checkpoint  # noqa: E402
from lowtide.checkpoint_tree import DTYPES, Decoder, Encoder  # noqa: E402


def round_trip(state, tmp_path):
    path = tmp_path / "c.safetensors"
    write_file(path, state)
    return read_file(path)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and a.dtype is b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad and (
            a.to_dense() if a.is_sparse else a).contiguous().flatten().view(torch.uint8).tolist() == (
            b.to_dense() if b.is_sparse else b).contiguous().flatten().view(torch.uint8).tolist()
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, float):
        return a.hex() == b.hex() or (math.isnan(a) and math.isnan(b))
    return a == b


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_type_of_tensor(dtype, tmp_path):
    torch.manual_seed(0)
    tensor = (torch.randn(3, 5) * 3).to(DTYPES[dtype]) if not dtype.startswith("U") else torch.arange(15).reshape(3, 5).to(DTYPES[dtype])
    state = {"a": tensor, "scalar": tensor[0, 0].clone(), "empty": tensor[:0].clone()}
    assert same(state, round_trip(state, tmp_path))


def test_everything_else(tmp_path):
    numpy = pytest.importorskip("numpy", reason="NumPy is not installed")
    state = {
        "none": None, "numbers": [1, -2 ** 70, 1.5, math.nan, -math.inf, 5e-324, -0.0, True], "text": ["\udc80", "é", "$t", ""],
        "tuple": (1, (2, [3])), "keys": {0: "a", (1, 2): "b", None: "c", "$t": 1, 1.5: 2}, "ordered": collections.OrderedDict(b=1, a=2),
        "set": {1, 2}, "bytes": b"\0\xff", "size": torch.Size([1, 2]), "dtype": torch.bfloat16, "device": torch.device("cpu"),
        "deque": collections.deque([1, 2], maxlen=3), "complex": 1 - 2j, "range": range(1, 9, 2), "sparse": torch.eye(4).to_sparse(),
        "parameter": nn.Parameter(torch.ones(2), requires_grad=False), "grad": torch.ones(2, requires_grad=True),
        "complex128": torch.randn(3, dtype=torch.complex128), "rng": random.getstate(), "": {"": 1}}
    back = round_trip(state, tmp_path)
    assert same(state, back)
    arrays = {"a": numpy.arange(6, dtype=">i2").reshape(2, 3), "s": numpy.float64(0.1), "state": numpy.random.get_state()}
    back = round_trip(arrays, tmp_path)
    assert (back["a"] == arrays["a"]).all() and back["a"].dtype == arrays["a"].dtype and type(back["s"]) is numpy.float64
    assert (back["state"][1] == arrays["state"][1]).all()


def test_shared_memory_stays_shared(tmp_path):
    weight = torch.randn(100, 100)
    back = round_trip({"embedding": weight, "head": weight, "view": weight[:50]}, tmp_path)
    assert back["embedding"] is back["head"] and torch.equal(back["view"], weight[:50])
    assert os.path.getsize(tmp_path / "c.safetensors") < 2 * 40000


plain = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
                     lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4)
                     | st.tuples(inner, inner), max_leaves=20)


@given(plain)
@settings(max_examples=200, deadline=None)
def test_any_plain_state(value):
    encoder = Encoder()
    tree = json.loads(json.dumps(encoder.encode(value)))
    assert same(value, Decoder(encoder.tensors.__getitem__).decode(tree))


class Odd:
    pass


def test_what_has_no_exact_form_is_refused_with_its_path(tmp_path):
    with pytest.raises(CheckpointError, match=r"state\.user\.things\.1: objects of type .*Odd"):
        write_file(tmp_path / "c", {"user": {"things": [1, Odd()]}})
    loop = []
    loop.append(loop)
    with pytest.raises(CheckpointError, match="nested more than"):
        write_file(tmp_path / "c", loop)
    assert os.listdir(tmp_path) == []


def test_other_readers_of_the_format_open_it(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    state = {"w": torch.randn(5, 7), "b": torch.ones(3, dtype=torch.bfloat16), "i": torch.arange(4)}
    write_file(tmp_path / "c.safetensors", state)
    back = safetensors.load_file(tmp_path / "c.safetensors")
    assert all(torch.equal(back[k], v) for k, v in state.items()) and set(back) == {"w", "b", "i", "lowtide.seal"}


def keeper_of(folder, **more):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    return Checkpointer(folder, model=model, optimizer=optimizer, **more), model, optimizer


def steps_in(folder):
    return [entry.step for entry in store.entries(folder)]


def test_due_by_steps_keeps_the_last_three(tmp_path):
    keeper, *_ = keeper_of(tmp_path, every_steps=10, every_seconds=None)
    saved = [n for n in range(1, 56) if keeper.step()]
    keeper.close()
    assert saved == [10, 20, 30, 40, 50] and steps_in(tmp_path) == [30, 40, 50]


def test_due_by_time_and_epoch(tmp_path):
    keeper, *_ = keeper_of(tmp_path, every_steps=None, every_seconds=0.05)
    assert not keeper.step()
    time.sleep(0.06)
    assert keeper.step() and not keeper.step() and keeper.end_epoch()
    keeper.close()
    assert steps_in(tmp_path) == [2, 3]


def test_state_is_all_there(tmp_path):
    keeper, model, optimizer = keeper_of(tmp_path, user={"best": 0.5}, background=False)
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    keeper.step_number, keeper.epoch = 7, 2
    assert keeper.save()
    keeper.close()
    keeper, other, fresh = keeper_of(tmp_path)
    resumed = keeper.resume()
    assert (resumed.step, resumed.epoch, resumed.user, keeper.step_number) == (7, 2, {"best": 0.5}, 7)
    assert same(model.state_dict(), other.state_dict()) and same(optimizer.state_dict(), fresh.state_dict())
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), other.parameters()))
    keeper.close()


def test_nothing_to_resume(tmp_path):
    keeper, *_ = keeper_of(tmp_path)
    assert keeper.resume() is None
    keeper.close()


def test_lenient_load_lists_what_was_left_out(tmp_path):
    keeper, *_ = keeper_of(tmp_path, background=False)
    assert keeper.save()
    keeper.close()
    model = nn.Sequential(collections.OrderedDict(weight=nn.Linear(1, 1), other=nn.Linear(2, 2)))
    grown = nn.Linear(4, 6)
    keeper = Checkpointer(tmp_path, model=grown, optimizer=torch.optim.Adam(grown.parameters()))
    with pytest.raises(CheckpointError, match="strict=False"):
        keeper.resume()
    with pytest.warns(UserWarning, match="weight: another shape"):
        resumed = keeper.resume(strict=False)
    assert ("model.weight", (4, 4), (6, 4), "another shape") in resumed.skipped
    keeper.parts["model"] = model
    with pytest.warns(UserWarning):
        reasons = {item.reason for item in keeper.resume(strict=False).skipped}
    assert {"not in this model", "not in the checkpoint"} <= reasons
    keeper.close()


def test_memory_is_set_aside_once(tmp_path):
    keeper, model, optimizer = keeper_of(tmp_path, every_steps=1)
    for _ in range(4):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        keeper.step()
        address = keeper._staging.address
        keeper.join()
        assert keeper._staging.address == address != 0
    keeper.close()


def test_imports_of_torch_save_and_lightning(tmp_path):
    model = nn.Linear(3, 2)
    torch.save({"model_state_dict": model.state_dict(), "optimizer_state_dict": {"state": {}}, "epoch": 4}, tmp_path / "a.pt")
    got = import_checkpoint(tmp_path / "a.pt")
    assert got["kind"] == "torch" and got["epoch"] == 4 and torch.equal(got["model"]["weight"], model.weight)
    torch.save(model.state_dict(), tmp_path / "b.pt")
    assert set(import_checkpoint(tmp_path / "b.pt")["model"]) == {"weight", "bias"}
    torch.save({"pytorch-lightning_version": "2.0", "state_dict": model.state_dict(), "global_step": 9, "epoch": 1, "optimizer_states": [{"state": {}}],
                "lr_schedulers": []}, tmp_path / "c.ckpt")
    got = import_checkpoint(tmp_path / "c.ckpt")
    assert got["kind"] == "lightning" and got["step"] == 9 and got["optimizer"] == {"state": {}} and got["scheduler"] is None


def lowtide_command():
    found = os.environ.get("LOWTIDE_BINARY") or shutil.which("lowtide")
    if not found:
        found = os.path.join(list(lowtide.__path__)[0], "bin", "lowtide")
    if not os.path.exists(found):
        pytest.skip("there is no lowtide binary: set LOWTIDE_BINARY")
    return found


def run(*arguments):
    done = subprocess.run([lowtide_command(), "checkpoint", *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_command(tmp_path):
    keeper, *_ = keeper_of(tmp_path, every_steps=1, background=False)
    keeper.step(), keeper.step()
    keeper.close()
    (tmp_path / ".tmp-1-ab-step-000000000009.safetensors").write_bytes(b"half")
    code, out, _ = run("list", tmp_path, "--format", "json")
    listed = json.loads(out)["checkpoints"]
    assert code == 0 and [c["committed"] for c in listed] == [True, True, False] and [c["step"] for c in listed[:2]] == [1, 2]
    code, out, _ = run("verify", tmp_path, "--format", "json")
    assert code == 0 and all(c["whole"] for c in json.loads(out)["checkpoints"])
    code, out, _ = run("show", tmp_path, "--format", "json")
    shown = json.loads(out)
    assert code == 0 and shown["step"] == 2 and "model" in shown["parts"]
    assert ["F32", [4, 4]] in [[t["dtype"], t["shape"]] for t in shown["tensors"] if t["name"] == "model.weight"]
    path = store.entries(tmp_path)[0].path
    with open(path, "r+b") as file:
        file.seek(4100)
        byte = file.read(1)
        file.seek(4100)
        file.write(bytes([byte[0] ^ 1]))
    code, out, _ = run("verify", tmp_path, "--format", "json")
    document = json.loads(out)
    assert code == 1 and [c["whole"] for c in document["checkpoints"]] == [False, True] and document["findings"][0]["code"] == "LT702"
    code, _, err = run("verify", tmp_path / "nothing")
    assert code == 2 and "help:" in err
