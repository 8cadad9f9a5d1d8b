"""Runs faults in forked children of one process that has PyTorch loaded already; prints one JSON line.

usage: checkpoint_fault_runner.py MODE FOLDER ARGUMENT     (tests/python/test_checkpoint_faults.py starts it)
"""
import ctypes
import errno
import json
import os
import random
import resource
import select
import signal
import sys
import time

import torch

from lowtide import checkpoint_store as store
from lowtide.checkpoint import Checkpointer
from lowtide.checkpoint_file import read_file

SHIM = ctypes.CDLL(None)


def model_of(step):
    model = torch.nn.Linear(64, 64)
    with torch.no_grad():
        model.weight.fill_(float(step))
        model.bias.copy_(torch.arange(64) + step)
    return model


def trainer(folder, pipe, first, saves, arm=None, direct=True):
    """A child: resumes, then saves step after step; writes each step's number once its save has been acknowledged."""
    torch.set_num_threads(1)
    model = model_of(0)
    keeper = Checkpointer(folder, model=model, background=False, every_steps=1, keep=3, direct=direct)
    keeper.resume()
    left = [n for n in os.listdir(folder) if n.startswith((".tmp-", ".old-"))]
    assert not left, f"temporary files of an earlier run: {left}"
    if arm:
        arm()
    for step in range(first, first + saves):
        with torch.no_grad():
            model.weight.fill_(float(step))
            model.bias.copy_(torch.arange(64) + step)
        keeper.step_number = step
        if keeper.save(wait=True):
            os.write(pipe, step.to_bytes(4, "little"))
    SHIM.fault_arm(b"", -1, 0) if arm else None


def fork(work):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            work(writer)
            code = 0
        except BaseException as error:
            sys.stderr.write(f"child: {type(error).__name__}: {error}\n")
        finally:
            os._exit(code)
    os.close(writer)
    return child, reader


def acknowledged(reader):
    data = b""
    while True:
        part = os.read(reader, 65536)
        if not part:
            break
        data += part
    os.close(reader)
    return int.from_bytes(data[-4:], "little") if len(data) >= 4 else 0


def check(folder, acked, before):
    """The newest committed checkpoint is whole and is the one acknowledged, or the one after it. Every other is whole too."""
    found = store.entries(folder)
    if not found:
        assert acked == 0 and before == 0, f"step {max(acked, before)} was acknowledged and is gone"
        return 0
    for entry in found:
        entry.verify()
        state = read_file(entry.path)
        assert state["run"]["step"] == entry.step
        assert torch.equal(state["model"][""]["weight"], torch.full((64, 64), float(entry.step))), entry
    newest = found[-1].step
    assert newest in (max(acked, before), max(acked, before) + 1), f"newest {newest}, acknowledged {acked}, before {before}"
    return newest


def kills(folder, count):
    newest, cut, pauses = 0, 0, random.Random(1)
    for number in range(count):
        child, reader = fork(lambda pipe: trainer(folder, pipe, newest + 1, 10 ** 6, direct=number % 2 == 0))
        if pauses.random() < 0.9:
            select.select([reader], [], [], 20)  # the first save is through: from now on at any moment
        time.sleep(pauses.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        acked = acknowledged(reader)
        cut += any(n.startswith(".tmp-") for n in os.listdir(folder))
        newest = check(folder, acked, newest)
    return {"kills": count, "saves": newest, "temporary_files_seen": cut}


def calls(folder, error):
    """The fault at each call in turn, until a run passes without reaching it."""
    newest, reached = 0, []
    at = 0
    while True:
        at += 1
        arm = lambda: SHIM.fault_arm(folder.encode(), at, error)
        def work(pipe):
            trainer(folder, pipe, newest + 1, 5, arm)
        child, reader = fork(work)
        _, status = os.waitpid(child, 0)
        acked = acknowledged(reader)
        killed = os.WIFSIGNALED(status)
        assert killed or os.waitstatus_to_exitcode(status) == 0, f"call {at}: exit {status}"
        if error:
            assert acked >= newest + 4, f"call {at}: later saves did not go through: {acked}, {newest}"
            left = [n for n in os.listdir(folder) if n.startswith(".tmp-")]
            assert len(left) <= 1, left
        newest = check(folder, acked, newest)
        reached.append(at)
        if (not error and not killed) or at > 150:
            return {"calls": at - 1}
        if error and at >= 60:
            return {"calls": at}


def order(folder, _):
    """The calls of two saves over a full folder, as the shim saw them."""
    reader, writer = os.pipe()
    def work(pipe):
        SHIM.fault_order.restype = ctypes.c_char_p
        keeper = Checkpointer(folder, model=model_of(1), background=False, keep=3)
        for step in range(1, 5):
            if step == 4:
                SHIM.fault_arm(folder.encode(), -1, 0)
            keeper.step_number = step
            assert keeper.save(wait=True)
        os.write(writer, SHIM.fault_order())
    child, pipe = fork(work)
    os.waitpid(child, 0)
    os.close(writer)
    text = os.read(reader, 1 << 16).decode()
    return {"order": text.splitlines()}


def full(folder, kind):
    """A disk that fills up, a quota, a file size limit: the save fails, training goes on, the old ones stay."""
    def work(pipe):
        big = torch.nn.Linear(700, 700)
        keeper = Checkpointer(folder, model=big, background=False, keep=3, direct=kind != "buffered")
        keeper.step_number = 1
        assert keeper.save(wait=True), keeper.last_error
        if kind == "limit":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        keeper.step_number = 2
        assert not keeper.save(wait=True)
        wanted = {"limit": errno.EFBIG}.get(kind, errno.ENOSPC)
        assert keeper.last_error.errno == wanted, keeper.last_error
        assert not [n for n in os.listdir(folder) if n.startswith(".tmp-")]
        assert keeper.failed == 1 and [f["code"] for f in keeper.sink.findings.values()] == ["LT701"]
        os.write(pipe, (1).to_bytes(4, "little"))
    child, reader = fork(work)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    assert acknowledged(reader) == 1
    (entry,) = store.entries(folder)
    entry.verify()
    return {"kept": entry.step}


def read_only(folder, _):
    """As another user, in a folder that becomes unwritable."""
    import secrets  # noqa: F401  NumPy asks for it later, when it may not be read any more

    def work(pipe):
        os.setgid(65534)
        os.setuid(65534)
        keeper = Checkpointer(folder, model=model_of(1), background=False)
        keeper.step_number = 1
        assert keeper.save(wait=True), keeper.last_error
        os.chmod(folder, 0o555)
        keeper.step_number = 2
        assert not keeper.save(wait=True) and keeper.last_error.errno == errno.EACCES, keeper.last_error
        os.chmod(folder, 0o755)
        keeper.step_number = 3
        assert keeper.save(wait=True)
    os.chmod(folder, 0o777)
    os.chown(folder, 65534, 65534)
    child, _ = fork(work)
    _, status = os.waitpid(child, 0)
    return {"status": status}


STAGES = ["before_file", "after_file", "before_manifest", "after_manifest", "after_rename"]


def shared(folder, world):
    """Several ranks on gloo; one is killed at each stage of the second save, the others with it; then all resume."""
    from lowtide import checkpoint as module

    def rank_work(rank, rendezvous, stage, victim, pipe):
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
        model = model_of(0)
        keeper = Checkpointer(folder, model=model, background=False, keep=2, timeout=60)
        resumed = keeper.resume()
        at = resumed.step if resumed else 0
        if resumed:
            assert torch.equal(model.weight, torch.full((64, 64), float(at * 10 + rank))), (rank, at)
        os.write(pipe, at.to_bytes(4, "little"))
        die = lambda now: os.kill(os.getpid(), signal.SIGKILL) if armed and now == stage and rank == victim else None
        armed = False
        image_write, manifest, rename = module.Image.write, store.write_manifest, os.rename

        def write(self, *args, **kwargs):
            die("before_file")
            image_write(self, *args, **kwargs)
            die("after_file")

        def write_manifest(*args):
            die("before_manifest")
            manifest(*args)
            die("after_manifest")

        def renamed(*args):
            rename(*args)
            die("after_rename")

        module.Image.write, store.write_manifest, os.rename = write, write_manifest, renamed
        for step in (at + 1, at + 2):
            armed = step == at + 2
            with torch.no_grad():
                model.weight.fill_(float(step * 10 + rank))
            keeper.step_number = step
            assert keeper.save(wait=True), keeper.last_error
            os.write(pipe, step.to_bytes(4, "little"))

    results, last = [], 0
    for number, (stage, victim) in enumerate([(s, v) for s in STAGES[:2] for v in (0, world - 1)] + [(s, 0) for s in STAGES[2:]] + [("none", 0)]):
        rendezvous = f"{folder}-meet-{number}"
        children = [fork(lambda pipe, r=r: rank_work(r, rendezvous, stage, victim, pipe)) for r in range(world)]
        if stage == "none":
            codes = [os.waitpid(c, 0)[1] for c, _ in children]
            assert codes == [0] * world, codes
        else:
            os.waitpid(children[victim][0], 0)
            time.sleep(0.05)
            for rank, (child, _) in enumerate(children):
                if rank != victim:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
        acked = [acknowledged(reader) for _, reader in children]
        newest = store.entries(folder)[-1]
        newest.verify()
        for rank in range(world):
            weight = read_file(newest.file_of(rank))["model"][""]["weight"]
            assert torch.equal(weight, torch.full((64, 64), float(newest.step * 10 + rank))), (stage, rank)
        assert newest.step >= max(acked) and newest.step - last in (1, 2), (stage, acked, newest.step, last)
        assert newest.step == last + 2 or stage in STAGES[:4], (stage, newest.step, last)
        last = newest.step
        results.append([stage, victim, newest.step])
    return {"stages": results}


def main():
    mode, folder, argument = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    work = {"kills": lambda: kills(folder, int(argument)), "calls": lambda: calls(folder, int(argument)),
            "order": lambda: order(folder, argument), "full": lambda: full(folder, argument),
            "read_only": lambda: read_only(folder, argument), "shared": lambda: shared(folder, int(argument))}[mode]
    print(json.dumps(work()))


if __name__ == "__main__":
    main()
