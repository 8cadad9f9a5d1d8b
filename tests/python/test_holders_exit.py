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
for step in range(75):
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

LOCAL = """
import time, torch

def main():
    model = torch.nn.Linear(128, 12)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    kept = []
    for step in range(1000 if "--long" in __import__("sys").argv else 55):
        out = model(torch.randn(24, 128))
        kept.append(out)
        loss = out.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)

main()
"""


def leak_of(out):
    document = json.loads((out / "findings.json").read_text())
    return next(row for row in document["verdicts"] if row["verdict"] == "leak" and not row["explained_by"]), document["holders"]


def test_a_leak_in_a_function_that_returned_too_soon_gets_no_false_name(lowtide, tmp_path):
    script = tmp_path / "short.py"
    script.write_text(LOCAL)
    done = lowtide("run", "-o", str(tmp_path / "out"), str(script))
    leak, holders = leak_of(tmp_path / "out")
    assert holders == [] and leak["unnamed"].startswith("not named: the run ended"), (leak, holders)
    assert leak["unnamed"] in done.stderr


def test_a_run_of_so_many_steps_looks_again_as_it_ends(lowtide, tmp_path):
    script = tmp_path / "short.py"
    script.write_text(LOCAL)
    done = lowtide("run", "--steps", "55", "-o", str(tmp_path / "out"), str(script), "--long")
    leak, holders = leak_of(tmp_path / "out")
    assert leak["unnamed"] is None and holders[0]["path"].startswith("kept"), done.stderr
    assert holders[0]["line"] == 10  # kept.append(out)
