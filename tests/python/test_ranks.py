"""Mistakes of distributed training, found in programs that know nothing of lowtide: small faulty ones and healthy twins."""
import os
import re
import subprocess
import time

import pytest
from rank_programs import FAULTS, HEAD, HEALTHY, job, loaded, made  # noqa: F401


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_named(job, name):
    program, codes, word = FAULTS[name]
    done, found = job(program)
    assert done.returncode == 0, done.stderr
    assert codes <= {f["code"] for f in found}, [f["message"] for f in found]
    assert all(f["severity"] in ("warning", "error") for f in found if f["code"] in codes)
    assert any(word in f["message"] for f in found if f["code"] in codes), [f["message"] for f in found]
    assert "lowtide/_ranks" not in done.stderr


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_is_quiet(job, name):
    done, found = job(HEALTHY[name])
    assert done.returncode == 0, done.stderr
    assert not found, [f["message"] for f in found]
    assert not list(job.folder.glob("trouble-*"))


def test_four_ranks(job):
    done, found = job(FAULTS["module"][0], ranks=4)
    assert done.returncode == 0, done.stderr
    assert {"LT606", "LT607"} <= {f["code"] for f in found}
    assert "ranks 1, 2, 3" in next(f["message"] for f in found if f["code"] == "LT607")


def test_the_place_outside_the_wrapper_is_named(job):
    _, found = job(FAULTS["module"][0])
    assert next(f for f in found if f["code"] == "LT606")["where"][0]["line"] in job.of("model.module(x)")


def test_uneven_batches_break_the_run_and_are_named(job):
    program = loaded("count = 200 + 100 * rank\nloader = DataLoader(TensorDataset(X[:count], Y[:count]), batch_size=10)\nsteps = len(loader)")
    done, found = job(program)
    assert done.returncode != 0
    assert "rank 0 has 20 batches an epoch, rank 1 has 30" in next(f["message"] for f in found if f["code"] == "LT605")


def test_an_unused_parameter_is_named_before_the_wrapper_raises(job):
    program = '''
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.extra = nn.Linear(16, 2), nn.Linear(16, 2)
    def forward(self, x):
        return self.used(x)
''' + made(wrap="model = DDP(Net())")
    done, found = job(program)
    assert done.returncode != 0
    assert "extra.weight" in next(f["message"] for f in found if f["code"] == "LT609")


OURS = '''
import lowtide.distributed
job = lowtide.distributed.setup(seed=1)
model = job.wrap(net(), sample=X[:2])
opt = torch.optim.AdamW(model.parameters())
epochs(job.loader(data, batch_size=20), model, opt)
job.close()
'''


def without_group(text):
    return re.sub(r"dist\.init_process_group.*\nrank, world.*\n", "rank, world = 0, 1\n", text)


def test_lowtides_own_set_up_is_quiet(job):
    line = job.line("", 2)
    job.script.write_text(without_group(HEAD) + OURS)
    done = subprocess.run(line, env=job.env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert not job.found() and len(list(job.folder.glob("facts-rank*"))) == 2


def test_ranks_that_never_join_are_told(job):
    text = without_group(HEAD) + made(wrap="model = net()")
    line = job.line("", 2)
    job.script.write_text(text)
    done = subprocess.run(line, env=job.env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert [f["code"] for f in job.found()] == ["LT619"]


def test_spawned_children_are_ranks(record):
    program = '''
import os, sys, tempfile, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
def work(rank, world, store):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(8, 2))
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(40):
        opt.zero_grad()
        model.module(torch.randn(4, 8)).sum().backward()
        opt.step()
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(work, args=(2, os.path.join(tempfile.mkdtemp(), "store")), nprocs=2)
'''
    done, document, _ = record(program)
    assert done.returncode == 0, done.stderr
    assert {"LT606", "LT607"} <= {f["code"] for f in document["findings"]}
    assert {v["rank"] for v in document["verdicts"]} == {0, 1}


def test_nothing_is_loaded_for_one_rank(record):
    program = "import sys, torch\nm = torch.nn.Linear(2, 2)\no = torch.optim.SGD(m.parameters(), 0.1)\nfor i in range(5):\n    m(torch.ones(1, 2)).sum().backward(); o.step()\n"
    program += "print([n for n in sys.modules if n.startswith('lowtide._ranks')])\n"
    done, _, folder = record(program)
    assert done.stdout == "[]\n"
    assert not list(folder.glob("facts-*")) and not list(folder.glob("stacks-*"))


def named_thread(work):
    """A thread that the system knows by the name of gloo's, and that has begun."""
    import ctypes
    import threading

    begun = threading.Event()

    def run():
        ctypes.CDLL(None).prctl(15, b"pt_gloo_runloop", 0, 0, 0)  # PR_SET_NAME
        begun.set()
        work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    begun.wait()
    return thread


@pytest.mark.skipif(not os.access("/proc/self/syscall", os.R_OK), reason="this kernel does not tell what its threads wait for")
def test_the_last_moment_is_for_busy_threads_of_gloo_alone():
    import threading

    from lowtide import _ranks_exit

    lock = threading.Lock()
    lock.acquire()
    between = named_thread(lock.acquire)
    busy = named_thread(lambda: time.sleep(0.02))
    time.sleep(0.005)
    _ranks_exit.let_go()
    assert between.is_alive() and not any(
        _ranks_exit._busy(thread.native_id) for thread in (between, busy)), "an idle thread is not waited for, a busy one is"
    lock.release()
