"""A script that ends before the second mark: the census at exit still names variable, rate and line."""
import json

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("lowtide._walk", reason="the extension lowtide._walk is not built for this interpreter")

SCRIPT = """
import torch
model = torch.nn.Linear(128, 12)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
state = torch.zeros(24, 12)
for step in range(60):
    state = 0.9 * state + model(torch.randn(24, 128))
    optimizer.zero_grad()
    state.sum().backward(retain_graph=True)
    optimizer.step()
"""


def test_the_census_at_exit_knows_the_script(lowtide, tmp_path):
    script = tmp_path / "carried.py"
    script.write_text(SCRIPT)
    out = tmp_path / "out"
    done = lowtide("run", "-o", str(out), str(script))
    assert done.returncode == 0, done.stderr
    holders = json.loads((out / "findings.json").read_text())["holders"]
    assert holders, done.stdout + done.stderr
    first = holders[0]
    assert first["path"] == "carried.state", first
    assert (first["file"], SCRIPT.splitlines()[first["line"] - 1].strip()[:7]) == (str(script), "state =")
    assert 12_000 < first["bytes_per_step"] < 24_000  # 12288 B of input, 1152 B of state, and graph nodes
