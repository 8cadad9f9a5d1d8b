"""``lowtide.plan(model, gpus=8, gpu="h100")``: what `lowtide plan` says, for a module that is already built."""
import json
import os
import subprocess
import tempfile

__all__ = ["Plan", "plan"]


class Plan(dict):
    """The document of ``lowtide plan --format json`` (docs/plan.md); as text, the tables."""

    def __init__(self, document, text):
        super().__init__(document)
        self.text = text

    def __str__(self):
        return self.text

    @property
    def peak_bytes(self):
        """Bytes that PyTorch allocates at the peak on the GPU that needs most."""
        return self["estimate"]["peak_bytes"]

    @property
    def fits(self):
        """True, False, or None when it is too close to tell or no GPU was named."""
        return {"fits": True, "does_not_fit": False}.get(self["estimate"]["fit"])


def _describe(model):
    """Counts of a module: parameters that several names share count once; no tensor's data is read."""
    from lowtide._plan_measure import config_of

    parameters = list(dict.fromkeys(model.parameters()))
    dtypes = {}
    for parameter in parameters:
        name = str(parameter.dtype).removeprefix("torch.")
        dtypes[name] = dtypes.get(name, 0) + parameter.numel()
    return {"name": type(model).__name__, "parameters": sum(p.numel() for p in parameters),
            "trainable": sum(p.numel() for p in parameters if p.requires_grad),
            "parameter_bytes": sum(p.numel() * p.element_size() for p in parameters), "dtypes": dtypes,
            "config": config_of(model)}


def _words(options):
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            yield option
        elif value is not None and value is not False:
            yield from (option, str(value))


def plan(model, **options):
    """Memory per GPU for training `model`, and the strategies ranked.

    model    a torch.nn.Module (also on the "meta" device), or what the command takes: a path, a name such as "llama3.1-8b"
    options  those of the command with underscores: gpus=8, gpu="h100", strategy="fsdp", seq_len=4096, micro_batch=2 ...

    Returns a `Plan`. Raises ValueError with the command's message when the model or an option makes no sense.
    """
    from lowtide.__main__ import find_binary

    binary = os.environ.get("LOWTIDE_BINARY") or find_binary()
    with tempfile.TemporaryDirectory(prefix="lowtide-plan-") as folder:
        if hasattr(model, "parameters"):
            path = os.path.join(folder, "model.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"lowtide_model": _describe(model)}, file)
        else:
            path = os.fspath(model)
        command = [binary, "plan", path, *_words(options)]
        texts = [subprocess.run([*command, "--format", form], capture_output=True, text=True) for form in ("json", "text")]
    for done in texts:
        if done.returncode:
            raise ValueError(done.stderr.strip() or f"lowtide plan ended with code {done.returncode}")
    return Plan(json.loads(texts[0].stdout), texts[1].stdout)
