"""Maps a published measurement (model, GPUs, strategy, flags, batch, sequence, checkpointing) to options of `lowtide plan`.

Only general rules on the words of these columns; nothing is fitted to a row.
"""
import csv
import json
import re
import subprocess

GIB = 2.0 ** 30


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read().replace("\r", "")
    return list(csv.DictReader(text.splitlines(), delimiter="\t"))


def _model(row):
    name = row["model"].strip()
    counts = re.search(r"\((\d[\d.]*[KMBT])(?:, largest layer (\d[\d.]*[KMBT]))?\)", name)
    if counts:
        largest = ["--counting", "deepspeed", "--largest-layer", counts.group(2)] if counts.group(2) else []
        return ["--params", counts.group(1), *largest]
    return ["--params", name] if re.fullmatch(r"\d[\d.]*[KMBT]", name) else [name]


def _degree(text, word):
    found = re.search(rf"\b{word}(\d+)\b", text)
    return int(found.group(1)) if found else 1


def _strategy(row):
    """(options, family): deepspeed, fsdp, megatron or single."""
    text, gpus = row["strategy"], int(row["gpus"])
    tp, pp, cp, ep = (_degree(text, word) for word in ("TP", "PP", "CP", "EP"))
    options = ["--gpus", gpus, "--tp", tp, "--pp", pp, "--cp", cp, "--ep", ep]
    offload = {(False, False): "none", (True, False): "optimizer", (True, True): "all", (False, True): "parameters"}
    kinds = re.search(r"offload", text) and ("opt" in text, "param" in text or "CPU" in text)
    if kinds:
        options += ["--offload", offload[kinds]]
    if "(SP)" in text:
        options += ["--sequence-parallel"]
    zero = re.search(r"ZeRO-(\d)", text)
    if zero:
        return options + ["--strategy", "zero" + zero.group(1)], "deepspeed"
    if "HSDP" in text:
        return options + ["--strategy", "hsdp"], "fsdp"
    if "FSDP" in text:
        return options + ["--strategy", "fsdp"], "fsdp"
    if "DDP" in text:
        return options + ["--strategy", "ddp"], "ddp"
    if re.search(r"\b(TP|PP|DP)\d", text):
        extra = ["--distributed-optimizer"] if "distributed optimizer" in text else []
        return options + ["--strategy", "megatron", *extra], "megatron"
    return options + ["--strategy", "single"], "single"


def _precision(flags, family):
    text = flags.lower()
    if family == "megatron":
        return "bf16"
    kind = "fp8" if "float8" in text or "fp8" in text else "fp16" if "fp16" in text else "bf16"
    if "fp32 master" in text or "+ fp32 adam" in text:
        return ("fp16" if kind == "fp16" else "bf16") + "-master"
    if "fp32" in text:
        return kind
    # Sharded by DeepSpeed, 16-bit weights have fp32 copies; else "bf16 all" means all.
    return "bf16" if family == "deepspeed" else "bf16-pure"


def _code(flags, family):
    if family == "megatron":
        return "fused"
    return "compile" if re.search(r"\bcompile\b", flags) else "eager"


def _flags(flags):
    options = []
    if "chunked" in flags or "optimizer in backward" in flags or "opt in backward" in flags:
        options += ["--logits", "chunked"]  # recipes that step inside the backward pass chunk their loss as well
    if "in backward" in flags:
        options += ["--optimizer-in-backward"]
    if "8-bit" in flags:
        options += ["--optimizer", "adam8bit"]
    if "Muon" in flags:
        options += ["--optimizer", "muon"]
    return options


def _batch(row, family):
    """Pipelines of PyTorch split the local batch into as many micro batches as there are stages."""
    batch, sequence = row["micro_batch_per_gpu"], row["seq_len"]
    options = [] if sequence in ("-", "-1") else ["--seq-len", sequence]
    if batch == "-":
        return options
    pp = _degree(row["strategy"], "PP")
    if pp > 1:
        micro = -(-int(batch) // pp) if family == "fsdp" else int(batch)
        return options + ["--micro-batch", micro, "--accumulate", pp]
    return options + ["--micro-batch", batch]


def options(row):
    strategy, family = _strategy(row)
    flags = row["precision_and_flags"]
    checkpoint = {"sac": "selective", "full": "full", "none": "none", "offload": "offload"}.get(row["activation_ckpt"], "none")
    states = ["--states-only"] if row["micro_batch_per_gpu"] == "-" else []
    return [*_model(row), *strategy, *_batch(row, family), "--precision", _precision(flags, family), "--code", _code(flags, family),
            "--checkpoint", checkpoint, *_flags(flags), *states, "--format", "json"]


def usable(row):
    """Rows that give all that a prediction needs."""
    return row["seq_len"] != "-1" and row["activation_ckpt"] != "?" and row["value_per_gpu"]


def predicted(row, document):
    """In the row's unit. Both torchtitan and Megatron log from the last pipeline stage, where the loss is."""
    stage = document["estimate"]["stages"][-1]
    steady = "steady state" in row["precision_and_flags"]
    figure = stage["steady_bytes"] if steady else stage["peak_bytes"]
    return figure / (1e9 if "10^9" in row["unit"] else GIB)


def predict(binary, row):
    """The document of `lowtide plan` for a row; a name that is not known is planned by the count in it (foo-13B)."""
    words = [str(word) for word in options(row)]
    done = subprocess.run([binary, "plan", *words], capture_output=True, text=True, timeout=60)
    if done.returncode and "known by this name" in done.stderr:
        count = re.search(r"(\d[\d.]*[KMBT])\b", row["model"], re.IGNORECASE)
        if count:
            words[0:1] = ["--params", count.group(1)]
            done = subprocess.run([binary, "plan", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (words, done.stderr)
    return json.loads(done.stdout)


def compare(binary, rows):
    """[(row, (predicted - published) / published)] of the rows that can be predicted."""
    return [(row, predicted(row, predict(binary, row)) / float(row["value_per_gpu"]) - 1) for row in rows if usable(row)]
