"""Power loss at any moment of a save: the recorded calls are replayed in every order that the disk may have kept."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest
from libtorch_program import program  # noqa: F401
from power_loss import read_calls, states

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import lowtide  # noqa: E402
from lowtide.checkpoint_file import CheckpointError, read_file  # noqa: E402

HERE = pathlib.Path(__file__).parent
PACKAGE = os.path.dirname(list(lowtide.__path__)[0])

# The second save is over an older checkpoint that goes, the third over a file of the same name.
WRITER = """
import sys, torch
from lowtide.checkpoint import Checkpointer
model = torch.nn.Linear(64, 64)
keeper = Checkpointer(sys.argv[1], model=model, background=False, keep=1, direct=sys.argv[2] == "direct")
for step in (1, 2, 2, 3):
    with torch.no_grad():
        model.weight.fill_(float(step))
    keeper.step_number = step
    assert keeper.save(wait=True), keeper.last_error
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the calls cannot be recorded")
    library = tmp_path_factory.mktemp("shim") / "fault_shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, HERE / "fault_shim.c", "-ldl"], check=True)
    return library


def recorded(shim, folder, argv, **more):
    log = folder.parent / "calls"
    subprocess.run(argv, check=True, timeout=300, stdout=subprocess.DEVNULL, env={
        **os.environ, "PYTHONPATH": PACKAGE, "LD_PRELOAD": str(shim), "FAULT_RECORD": str(log), "FAULT_FOLDER": str(folder), **more})
    return read_calls(log)


def step_of(name):
    match = re.fullmatch(r"step-(\d{12})\.safetensors", name)
    return int(match.group(1)) if match else None


def acknowledged(calls):
    """After so many calls -> the newest step whose save had been reported as durable."""
    newest, renamed, out = 0, 0, [0]
    for op, name, other, _, _ in calls:
        if op == "rename" and step_of(other):
            renamed = step_of(other)
        if op == "sync" and name == ".":
            newest = max(newest, renamed)
        out.append(newest)
    return out


def weight_of(state):
    return state["model"][""]["weight"]


def survivors(calls, check):
    """Replays every state; returns (states, their problems): none whole though one was durable, or a file under a final name
    that is not whole."""
    durable, count, problems, known = acknowledged(calls), 0, [], {}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:
        for made, entries in states(calls):
            count += 1
            newest = 0
            for name, content in entries.items():
                if not step_of(name):
                    continue
                if (name, content) not in known:
                    path = pathlib.Path(place) / name
                    path.write_bytes(content)
                    try:
                        known[name, content] = check(path)
                    except CheckpointError as error:
                        known[name, content] = str(error)
                step = known[name, content]
                if isinstance(step, str):
                    problems.append(f"after {made} calls {name} is damaged: {step}")
                else:
                    newest = max(newest, step)
            if newest < durable[made]:
                problems.append(f"after {made} calls step {durable[made]} is gone, the newest is {newest}")
    return count, problems


def load(path):
    """The step of a whole file, with the numbers that were saved at it."""
    state = read_file(path)
    step = state["run"]["step"]
    assert step == step_of(path.name) and torch.equal(weight_of(state), torch.full((64, 64), float(step)))
    return step


@pytest.fixture(scope="module", params=["direct", "buffered"])
def calls(request, shim, tmp_path_factory):
    folder = tmp_path_factory.mktemp("power") / "c"
    return recorded(shim, folder, [sys.executable, "-c", WRITER, str(folder), request.param])


def test_every_state_that_a_power_loss_may_leave_has_a_whole_checkpoint(calls):
    count, problems = survivors(calls, load)
    assert count > 500 and not problems, problems[:5]


def test_the_order_of_a_save(calls):
    """write < fdatasync(file) < rename < fsync(folder) < removal of the older one"""
    for number, call in enumerate(calls):
        if call[0] != "rename" or not step_of(call[2]):
            continue
        temporary, before, after = call[1], calls[:number], calls[number + 1:]
        writes = [i for i, c in enumerate(before) if c[1] == temporary and c[0] in ("write", "truncate", "allocate", "create")]
        syncs = [i for i, c in enumerate(before) if c[:2] == ("sync", temporary)]
        assert writes and syncs and max(writes) < max(syncs), (writes, syncs)
        folder = next(i for i, c in enumerate(after) if c[:2] == ("sync", "."))
        removals = [i for i, c in enumerate(after) if c[0] == "unlink" and step_of(c[1])]
        assert not removals or folder < removals[0]
    assert sum(c[0] == "unlink" and step_of(c[1]) is not None for c in calls) == 2  # steps 1 and 2


def without(calls, which):
    return [c for c in calls if not which(c)]


@pytest.mark.parametrize("broken", ["no file sync", "no folder sync", "removed first", "renamed first"])
def test_the_replay_sees_a_writer_that_gets_it_wrong(calls, broken):
    if broken == "no file sync":
        calls = without(calls, lambda c: c[0] == "sync" and c[1] != ".")
    elif broken == "no folder sync":  # but what it reports as durable stays the same: nothing is promised without it
        last = max(i for i, c in enumerate(calls) if c[:2] == ("sync", "."))
        calls = calls[:last] + calls[last + 1:]
    elif broken == "removed first":
        at = max(i for i, c in enumerate(calls) if c[0] == "unlink" and step_of(c[1]))
        rename = max(i for i, c in enumerate(calls) if c[0] == "rename" and step_of(c[2]))
        calls = calls[:rename] + [calls[at]] + calls[rename:at] + calls[at + 1:]
    else:
        rename = max(i for i, c in enumerate(calls) if c[0] == "rename" and step_of(c[2]))
        temporary = calls[rename][1]
        write = min(i for i, c in enumerate(calls) if c[0] == "write" and c[1] == temporary)
        moved = [c[:1] + (calls[rename][2],) + c[2:] if c[1] == temporary else c for c in calls[write:rename]]
        calls = calls[:write] + [calls[rename]] + moved + calls[rename + 1:]
    _, problems = survivors(calls, load)
    assert problems


def test_a_libtorch_program_survives_too(shim, program, tmp_path):  # noqa: F811
    folder = tmp_path / "c"
    calls = recorded(shim, folder, [program, "500", "--checkpoints", folder], OMP_NUM_THREADS="1")
    assert sum(c[0] == "unlink" for c in calls) == 2  # five saves, three stay
    count, problems = survivors(calls, lambda path: read_file(path)["run"]["step"])
    assert count > 500 and not problems, problems[:5]
