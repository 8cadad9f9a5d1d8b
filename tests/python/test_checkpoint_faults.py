"""Faults: kills, full disks, damaged bytes, two writers. Never a wrong load, never both old and new lost."""
import json
import os
import pathlib
import pickle
import random
import shutil
import subprocess
import sys

import pytest
from disks import small_disk

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import lowtide  # noqa: E402
from lowtide import checkpoint_store as store  # noqa: E402
from lowtide.checkpoint import CheckpointError, Checkpointer  # noqa: E402
from lowtide.checkpoint_file import read_file, verify_file, write_file  # noqa: E402

HERE = pathlib.Path(__file__).parent
PACKAGE = os.path.dirname(list(lowtide.__path__)[0])
KILLS = int(os.environ.get("LOWTIDE_KILLS", "500"))


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the calls cannot be intercepted")
    library = tmp_path_factory.mktemp("shim") / "fault_shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, HERE / "fault_shim.c", "-ldl"], check=True)
    return library


def runner(mode, folder, argument, preload=None, seconds=1200):
    environment = {**os.environ, "PYTHONPATH": PACKAGE}
    if preload:
        environment["LD_PRELOAD"] = str(preload)
    done = subprocess.run([sys.executable, str(HERE / "checkpoint_fault_runner.py"), mode, str(folder), str(argument)],
                          capture_output=True, text=True, env=environment, timeout=seconds)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_kills_at_random_moments(tmp_path):
    out = runner("kills", tmp_path / "c", KILLS)
    assert out["saves"] > KILLS / 4 and out["temporary_files_seen"] > 0, out


def test_a_kill_after_each_call(tmp_path, shim):
    assert runner("calls", tmp_path / "c", 0, shim)["calls"] > 40


@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EDQUOT"])
def test_each_call_fails_once(tmp_path, shim, error):
    import errno

    assert runner("calls", tmp_path / "c", getattr(errno, error), shim)["calls"] >= 40


def test_durable_before_renamed_before_purged(tmp_path, shim):
    calls = [line.split()[0] for line in runner("order", tmp_path / "c", 0, shim)["order"]]
    order = [calls.index(name) for name in ("create", "pwrite", "fdatasync", "rename", "fsync", "unlink")]
    assert order == sorted(order) and calls.count("unlink") == 1, calls


def test_file_size_limit(tmp_path):
    assert runner("full", tmp_path / "c", "limit") == {"kept": 1}


def test_full_disk(tmp_path):
    with small_disk(tmp_path / "small", "3200k") as place:
        assert runner("full", place, "disk") == {"kept": 1}


def test_read_only_folder():
    if os.geteuid() != 0:
        pytest.skip("needs the right to become another user")
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # a path that the other user may walk
        os.chmod(place, 0o755)
        assert runner("read_only", place + "/c", 0) == {"status": 0}


def test_several_ranks_killed_at_each_stage(tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    assert len(runner("shared", tmp_path / "c", 4)["stages"]) == 8


def test_two_writers(tmp_path):
    model = torch.nn.Linear(2, 2)
    with Checkpointer(tmp_path, model=model):
        with pytest.raises(CheckpointError, match=f"process {os.getpid()} on"):
            Checkpointer(tmp_path, model=model)
    Checkpointer(tmp_path, model=model).close()


STATE = {"w": torch.arange(96, dtype=torch.float32).reshape(8, 12), "b": torch.ones(3, dtype=torch.int8), "n": {"step": 5, "x": [1.5, None]}}


@pytest.fixture
def small():
    """A small file where writing is cheap, its path and its bytes."""
    place = pathlib.Path("/dev/shm") if os.path.isdir("/dev/shm") else None
    import tempfile

    with tempfile.TemporaryDirectory(dir=place) as folder:
        path = os.path.join(folder, "small.safetensors")
        write_file(path, STATE, step=5, direct=False)
        with open(path, "rb") as file:
            yield path, file.read()


def refused(path):
    """Verifying and loading both refuse it."""
    with pytest.raises(CheckpointError) as raised:
        verify_file(path)
    assert path in str(raised.value)
    with pytest.raises(CheckpointError):
        read_file(path)
    return True


def test_every_bit_flip_is_seen(small):
    path, data = small
    fd = os.open(path, os.O_RDWR)
    for at in range(len(data)):
        for bit in (range(8) if at >= 4096 or at % 16 == 0 else (at % 8,)):
            os.pwrite(fd, bytes([data[at] ^ 1 << bit]), at)
            try:
                verify_file(path)
            except CheckpointError:
                pass
            else:
                raise AssertionError(f"bit {bit} of byte {at} is not covered")
        os.pwrite(fd, data[at:at + 1], at)
    os.close(fd)
    verify_file(path)


def test_every_truncation_is_seen(small):
    path, data = small
    for length in range(len(data) - 1, -1, -1):
        os.truncate(path, length)
        try:
            read_file(path)
        except CheckpointError:
            continue
        raise AssertionError(f"cut at {length} bytes it still loads")


def test_appended_bytes_are_seen(small):
    path, data = small
    with open(path, "ab") as file:
        file.write(b"\0" * 64)
    refused(path)


def test_torn_blocks_are_seen(tmp_path):
    path = str(tmp_path / "c.safetensors")
    torch.manual_seed(0)
    write_file(path, {"w": torch.randn(40, 1024)})
    data = pathlib.Path(path).read_bytes()
    blocks = range(0, len(data) - 4095, 4096)
    for at in blocks:
        for block in (bytes(4096), data[at + 1:at + 4096] + b"\0", data[at - 4096:at] if at else data[4096:8192], os.urandom(4096)):
            damaged = data[:at] + block + data[at + 4096:]
            if damaged == data:
                continue
            pathlib.Path(path).write_bytes(damaged)
            refused(path)


@pytest.mark.parametrize("head", [b"", b"\0" * 8, b"\xff" * 8, (1 << 40).to_bytes(8, "little"), (2).to_bytes(8, "little") + b"{}",
                                  (40).to_bytes(8, "little") + b'{"a":' * 8, (2000).to_bytes(8, "little") + b"[" * 2000,
                                  (50).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,' + b"9" * 40])
def test_hostile_headers(tmp_path, head):
    path = str(tmp_path / "c.safetensors")
    pathlib.Path(path).write_bytes(head)
    refused(path)


def test_hostile_trees(tmp_path):
    """The description of the state is data: odd forms are refused with a message, never a crash or an import."""
    from lowtide.checkpoint_tree import Decoder

    def no_tensor(name):
        raise CheckpointError(f"there is no tensor {name!r}")

    deep = {}
    for _ in range(500):
        deep = {"a": deep}
    for tree in ({"$t": "x"}, {"$t": ["x"]}, {"$eval": "1"}, {"$dict": [1]}, {"$dict": [[[1], 2]]}, {"$dtype": "load"}, {"$float": "1"},
                 {"$array": ["x", "O", [1]]}, {"$bytes": 5}, {"$size": ["a"]}, {"$deque": []}, {"$range": ["x"]}, {"$set": [[1]]}, deep,
                 {"$complex": ["x", "y"]}, {"$device": "nowhere:7:7"}, {"$sparse": [1, 2, 3]}):
        with pytest.raises(CheckpointError):
            Decoder(no_tensor).decode(tree)


class Bomb:
    def __reduce__(self):
        return os.system, ("touch %s" % Bomb.path,)


def test_a_pickle_is_never_run(tmp_path):
    Bomb.path = str(tmp_path / "ran")
    for name, content in (("raw", pickle.dumps(Bomb())), ("torch", None)):
        path = str(tmp_path / f"{name}.safetensors")
        if content is None:
            torch.save({"model": Bomb()}, path)
        else:
            pathlib.Path(path).write_bytes(content)
        refused(path)
        from lowtide.checkpoint_import import import_checkpoint

        with pytest.raises(CheckpointError):
            import_checkpoint(path)
    assert not os.path.exists(Bomb.path)


def test_changes_after_save_are_not_in_the_file(tmp_path):
    model = torch.nn.Linear(1500, 1500)
    before = model.weight.detach().clone()
    with Checkpointer(tmp_path, model=model) as keeper:
        assert keeper.save()
        with torch.no_grad():
            model.weight.fill_(-1.0)
        keeper.join()
        (entry,) = store.entries(tmp_path)
        assert torch.equal(read_file(entry.path)["model"][""]["weight"], before)


def test_damaged_newest_falls_back(tmp_path):
    model = torch.nn.Linear(4, 4)
    with Checkpointer(tmp_path, model=model, background=False) as keeper:
        for step in (1, 2):
            with torch.no_grad():
                model.weight.fill_(float(step))
            keeper.step_number = step
            assert keeper.save()
    newest = store.entries(tmp_path)[-1].path
    data = bytearray(pathlib.Path(newest).read_bytes())
    data[random.Random(0).randrange(4096, len(data))] ^= 4
    pathlib.Path(newest).write_bytes(data)
    with Checkpointer(tmp_path, model=model) as keeper, pytest.warns(UserWarning, match="passed over"):
        resumed = keeper.resume()
        assert resumed.step == 1 and float(model.weight.detach()[0, 0]) == 1.0 and newest in resumed.damaged[0]
        assert [f["code"] for f in keeper.sink.findings.values()] == ["LT702"]
