"""`lowtide plan` and lowtide.plan, end to end."""
import json
import os
import random
import re

import pytest

LLAMA = {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}


@pytest.fixture
def plan(lowtide):
    """Calls `lowtide plan ... --format json` and returns the document."""

    def call(*args):
        done = lowtide("plan", *args, "--format", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


def test_document(plan, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    document = plan(tmp_path, "--gpus", 16, "--gpu", "h100", "--seq-len", 4096)
    assert document["schema"] == 1 and document["lowtide"]
    assert document["model"]["parameters"] == 8030261248
    assert document["capacity_bytes"] > 80e9
    estimate = document["estimate"]
    assert sum(term["bytes"] for term in estimate["terms"]) == estimate["peak_bytes"]
    for moment, total in estimate["moments"].items():
        assert sum(term["at"][moment] for term in estimate["terms"]) == total
    assert max(v for k, v in estimate["moments"].items() if k != "between_steps") == estimate["peak_bytes"]
    assert all(term["formula"] and term["source"] for term in estimate["terms"])
    assert {"ddp", "fsdp", "hsdp", "zero1", "zero2", "tp-fsdp", "tp-pp-dp"} <= {row["kind"] for row in document["strategies"]}


def test_nothing_fits_inside_the_band(plan):
    for gpu in ("t4", "a100-40", "h100"):
        document = plan("llama3.1-8b", "--gpus", 8, "--gpu", gpu)
        for row in document["strategies"]:
            unusable = row["needed_bytes"] - row["peak_bytes"]
            fits = row["peak_bytes"] * (1 + row["band"]) + unusable <= document["capacity_bytes"]
            assert (row["fit"] == "fits") == fits
            assert row["band"] in (0.2, 0.35)
        order = [("fits", "too_close", "does_not_fit").index(row["fit"]) for row in document["strategies"]]
        assert order == sorted(order)


def test_folder_file_and_name_agree(plan, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    figures = {plan(model)["estimate"]["peak_bytes"] for model in (path, tmp_path, "llama3.1-8b", "meta-llama/Llama-3.1-8B")}
    assert len(figures) == 1


def test_a_bare_count_says_what_is_assumed(plan):
    document = plan("--params", "7B")
    assert document["model"]["parameters"] == 7e9
    assert any("layers" in text for text in document["model"]["assumed"])
    given = plan("--params", "7B", "--layers", 32, "--hidden", 4096, "--heads", 32, "--kv-heads", 32, "--ffn", 11008, "--vocab", 32000)
    assert given["model"]["assumed"] == [] and given["model"]["layers"] == 32


def test_the_popular_answer_stands_beside_ours(plan):
    popular = plan("llama2-7b", "--gpus", 8, "--gpu", "a100-80")["popular"]
    assert popular["name"] == "DDP" and popular["fit"] == "does_not_fit" and "optimizer states" in popular["reason"]


def test_text_in_both_languages(lowtide):
    english = lowtide("plan", "mixtral-8x7b", "--gpus", 64, "--gpu", "a100-40")
    chinese = lowtide("--lang", "zh", "plan", "mixtral-8x7b", "--gpus", 64, "--gpu", "a100-40")
    assert english.returncode == chinese.returncode == 0
    assert "does not fit" in english.stdout and "Strategies" in english.stdout and "assumed" not in english.stdout
    assert not re.search(r"[\u4e00-\u9fff]", english.stdout)
    # Beside names of things, options and units no English is left.
    words = set(re.findall(r"[A-Za-z]{4,}", re.sub(r"`[^`]*`|--[\w-]+ \S+|lowtide plan \S+ ?\S*|\S+\.py", "", chinese.stdout)))
    assert words <= {"mixtral", "adamw", "master", "token", "logits", "PyTorch", "CUDA", "NCCL", "FSDP", "HSDP", "ZeRO", "cuBLAS", "Transformer",
                     "Engine", "flash", "eager", "attention", "logit", "cross", "gradient", "bucket", "view", "True", "chunked", "compile", "code",
                     "measure", "len", "offload", "gradient_as_bucket_view", "GPU", "AdamW", "foreach"}, words


@pytest.mark.parametrize("args, words", [
    ((), ["which model"]),
    (("no-such-model",), ["known by this name", "llama3.1-8b"]),
    (("--params", "-7B"), ["count of parameters"]),
    (("--params", "1e400"), ["count of parameters"]),
    (("--params", "7Q"), ["count of parameters"]),
    (("--params", "1"), ["parameters"]),
    (("gpt2", "--gpus", "0"), ["--gpus"]),
    (("gpt2", "--gpus", "8", "--tp", "3"), ["8 GPUs", "tp 3"]),
    (("gpt2", "--gpus", "8", "--tp", "8"), ["12 attention heads", "--tp 8"]),
    (("gpt2", "--gpus", "16", "--pp", "16"), ["12 layers", "--pp"]),
    (("gpt2", "--gpus", "8", "--cp", "8", "--seq-len", "1001"), ["--cp"]),
    (("gpt2", "--gpus", "8", "--ep", "2"), ["experts"]),
    (("gpt2", "--gpus", "8", "--strategy", "single"), ["one GPU"]),
    (("gpt2", "--gpus", "8", "--strategy", "zero9"), ["zero9", "zero3"]),
    (("gpt2", "--gpus", "8", "--strategy", "ddp", "--offload", "parameters"), ["--offload"]),
    (("gpt2", "--gpu", "abacus"), ["abacus", "h100"]),
    (("gpt2", "--micro-batch", "99999999999999999999"), ["micro-batch"]),
    (("gpt2", "--micro-batch", "-1"), ["micro-batch"]),
    (("gpt2", "--seq-len", "18446744073709551615"), ["--seq-len"]),
    (("--layers", "99999999999", "--hidden", "99999999999"), ["layers", "100000"]),
    (("--measure", "no-such.py"), ["no such script"]),
])
def test_bad_input_is_one_clear_error(lowtide, args, words):
    done = lowtide("plan", *args)
    assert done.returncode == 2 and not done.stdout, done.stdout
    for word in words:
        assert word in done.stderr, done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{\"hidden_size\": 1e999}", "\x00\x01", "{\"hidden_size\": {}}", "[" * 100000])
def test_a_file_that_is_no_configuration(lowtide, tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    done = lowtide("plan", path)
    assert done.returncode == 2 and "help:" in done.stderr and str(path) in done.stderr, done.stderr


def test_random_options_never_crash(lowtide):
    choose = random.Random(5)
    numbers = ["0", "1", "2", "3", "8", "64", "1000000", "4294967296", "18446744073709551616", "-1", "1e9", "x"]
    options = ["--gpus", "--tp", "--pp", "--cp", "--ep", "--shard", "--micro-batch", "--seq-len", "--accumulate", "--lora-rank", "--layers",
               "--hidden", "--heads", "--kv-heads", "--ffn", "--vocab", "--experts", "--base-bits", "--gpu-memory", "--gpus-per-node"]
    for _ in range(60):
        words = [word for option in choose.sample(options, 4) for word in (option, choose.choice(numbers))]
        done = lowtide("plan", choose.choice(["gpt2", "mixtral-8x7b"]), *words, "--format", "json")
        assert done.returncode in (0, 2), (words, done.stderr)
        assert "internal error" not in done.stderr, (words, done.stderr)
        if done.returncode == 0:
            json.loads(done.stdout)


def test_a_live_module(lowtide_binary, monkeypatch):
    torch = pytest.importorskip("torch")
    import lowtide

    monkeypatch.setenv("LOWTIDE_BINARY", lowtide_binary)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(100, 16)
            self.head = torch.nn.Linear(16, 100, bias=False)
            self.head.weight = self.embed.weight  # shared: counted once
            self.base = torch.nn.Linear(16, 16).requires_grad_(False)

    planned = lowtide.plan(Net(), gpus=8, gpu="h100", precision="fp32", strategy="zero3")
    assert planned["model"]["parameters"] == 1600 + 272
    assert planned["model"]["trainable_parameters"] == 1600
    assert planned["setup"]["strategy"] == "zero3" and planned.fits is True and planned.peak_bytes > 0
    assert "Net" in str(planned)
    with pytest.raises(ValueError, match="zero9"):
        lowtide.plan(Net(), strategy="zero9")


def test_a_live_module_with_a_configuration_on_the_meta_device(lowtide_binary, monkeypatch):
    torch = pytest.importorskip("torch")
    import lowtide

    monkeypatch.setenv("LOWTIDE_BINARY", lowtide_binary)
    with torch.device("meta"):
        model = torch.nn.Linear(4096, 2000, bias=False)
    model.config = LLAMA
    planned = lowtide.plan(model)
    assert planned["model"]["layers"] == 32 and planned["model"]["parameters"] == 4096 * 2000


TRAIN = """
import sys
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
model[0].requires_grad_("--frozen" not in sys.argv)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
print("to standard output")
for step in range(50):
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("frozen", [False, True])
def test_measure(lowtide, tmp_path, frozen):
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    done = lowtide("plan", "--gpus", 4, "--gpu", "t4", "--format", "json", "--measure", script, *(["--frozen"] if frozen else []))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    measured = document["measured"]
    total, trained = 64 * 512 + 512 + 512 * 8 + 8, 512 * 8 + 8 + (0 if frozen else 64 * 512 + 512)
    assert measured["parameters"] == total and measured["trainable_parameters"] == trained
    assert measured["weight_bytes"] == 4 * total
    assert abs(measured["optimizer_bytes"] - 8 * trained) < 100
    assert measured["gradient_bytes"] == 4 * trained
    assert measured["pool"] == "cpu" and measured["micro_batch"] == 32
    assert measured["peak_bytes"] >= measured["weight_bytes"] + measured["optimizer_bytes"]
    assert document["strategies"]
    assert os.listdir(tmp_path) == ["train.py"]  # the record is gone
    assert any("not known" in note for note in measured["notes"])


def test_measure_calibrates_a_known_model(lowtide, tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(TRAIN.replace("print(", "model.config = dict(model_type='llama', hidden_size=64, "
                      "num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=64)\nprint("))
    done = lowtide("plan", "--gpu", "t4", "--seq-len", 16, "--format", "json", "--measure", script)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["measured"]
    assert measured["activation_ratio"] > 0 and measured["predicted_peak_bytes"] > 0


def test_measure_sees_the_whole_model_behind_named_arguments(lowtide, tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text("""
import torch
class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(50, 16), torch.nn.Linear(16, 50)
    def forward(self, ids=None):
        return self.head(self.embed(ids))
model = Outer()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    model(ids=torch.randint(0, 50, (6, 11))).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
""")
    done = lowtide("plan", "--format", "json", "--measure", script)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["measured"]
    assert measured["parameters"] == 50 * 16 + 16 * 50 + 50
    assert (measured["micro_batch"], measured["seq_len"], measured["optimizer_bytes"]) == (6, 11, 0)


def test_measure_of_a_script_that_does_not_train(lowtide, tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "none.py"
    script.write_text("import torch\n")
    done = lowtide("plan", "--measure", script)
    assert done.returncode == 2 and "no training step" in done.stderr
