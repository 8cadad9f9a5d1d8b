"""Mistakes of distributed training, found in programs that know nothing of lowtide: small faulty ones and healthy twins."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this PyTorch has no gloo: ranks cannot be tried", allow_module_level=True)

HEAD = '''
import contextlib, copy, os, sys, time
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
steps = 70
torch.manual_seed(0)
X = torch.randn(400, 16)
Y = (X.sum(1) > 0).long()
data = TensorDataset(X, Y)
def net():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
def batch():
    index = torch.randint(0, 400, (10,))
    return X[index], Y[index]
def epochs(loader, model, opt, each_epoch=lambda epoch: None, each_step=lambda: None):
    done = epoch = 0
    while done < steps:
        each_epoch(epoch)
        for x, y in loader:
            each_step()
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
            done += 1
            if done == steps:
                break
        epoch += 1
'''

MADE = '''
torch.manual_seed(1 + rank)
for step in range(steps):
    {before}
    x, y = batch()
    opt.zero_grad()
    F.cross_entropy({forward}, y).backward()
    {after}
    opt.step()
'''


def made(wrap="model = DDP(net())", opt="opt = torch.optim.AdamW(model.parameters())", before="pass", forward="model(x)", after="pass"):
    return f"{wrap}\n{opt}\n" + MADE.format(before=before, forward=forward, after=after)


def loaded(loader, more=""):
    return f"model = DDP(net())\nopt = torch.optim.AdamW(model.parameters())\n{loader}\nepochs(loader, model, opt{more})\n"


SHARED_SAMPLER = "loader = DataLoader(data, batch_size=20, sampler=DistributedSampler(data))"
SET_EPOCH = ", loader.sampler.set_epoch"

FAULTS = {  # name -> (program, codes that must be there, a word of the finding)
    "no_set_epoch": (loaded(SHARED_SAMPLER), {"LT601"}, "set_epoch"),
    "set_epoch_always_zero": (loaded(SHARED_SAMPLER, ", lambda epoch: loader.sampler.set_epoch(0)"), {"LT601"}, "set_epoch"),
    "own_sampler": ('''
class Mine(torch.utils.data.Sampler):
    epoch = 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __len__(self):
        return 400 // world
    def __iter__(self):
        return iter(torch.randperm(400, generator=torch.Generator().manual_seed(self.epoch))[rank::world].tolist())
''' + loaded("loader = DataLoader(data, batch_size=20, sampler=Mine())"), {"LT601"}, "Mine.set_epoch"),
    "same_data": (loaded("torch.manual_seed(7)\nloader = DataLoader(data, batch_size=10, shuffle=True)"), {"LT602"}, "RandomSampler"),
    "same_share": (loaded("loader = DataLoader(data, batch_size=10, sampler=DistributedSampler(data, world, 0))", SET_EPOCH),
                   {"LT602", "LT603"}, "same data"),
    "seeds": (loaded("loader = DataLoader(data, batch_size=10, sampler=DistributedSampler(data, seed=rank))", SET_EPOCH), {"LT603"}, "seed"),
    "no_sampler": (loaded("torch.manual_seed(rank)\nloader = DataLoader(data, batch_size=10, shuffle=True)"), {"LT604"}, "DistributedSampler"),
    "module": (made(forward="model.module(x)"), {"LT606", "LT607"}, "model.module"),
    "kept_reference": (made(wrap="inner = net()\nmodel = DDP(inner)", forward="inner(x)"), {"LT606", "LT607"}, "reference"),
    "no_sync_for_ever": (made(before="model.require_backward_grad_sync = False"), {"LT606"}, "no_sync"),
    "clip_on_one_rank": (made(after="if rank == 0: nn.utils.clip_grad_norm_(model.parameters(), 0.01)"), {"LT607"}, "differ"),
    "loaded_on_one_rank": (made(before="if rank == 1 and step == 5: nn.init.ones_(model.module[2].weight)"), {"LT607"}, "rank 1"),
    "thawed": (made(wrap="inner = net()\nfor p in inner[0].parameters(): p.requires_grad_(False)\nmodel = DDP(inner)\n"
                    "for p in inner[0].parameters(): p.requires_grad_(True)"), {"LT608"}, "unfrozen"),
    "another_optimizer": (made(wrap="inner = net()\nmodel = DDP(copy.deepcopy(inner))", opt="opt = torch.optim.SGD(inner.parameters(), 0.1)"),
                          {"LT608"}, "no optimizer updates"),
    "needless": (made(wrap="model = DDP(net(), find_unused_parameters=True)"), {"LT609"}, "find_unused_parameters"),
    "statistics": (made(wrap="model = DDP(nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 2)), broadcast_buffers=False)"),
                   {"LT611"}, "running_mean"),
    "accumulation": (made(before="for k in range(3): x, y = batch()", forward="model(x)",
                          after="").replace("F.cross_entropy(model(x), y).backward()",
                                            "[(F.cross_entropy(model(x), y) / 4).backward() for k in range(4)]"), {"LT612"}, "no_sync"),
    "slow_compute": (made(before="time.sleep(0.01 + 0.03 * (rank == 1))"), {"LT613"}, "compute"),
    "slow_data": ('''
class Slow(TensorDataset):
    def __getitem__(self, index):
        time.sleep(0.004 * (rank == 0))
        return super().__getitem__(index)
''' + loaded("loader = DataLoader(Slow(X, Y), batch_size=10, sampler=DistributedSampler(data))", SET_EPOCH), {"LT613"}, "rank 0"),
    "never_wrapped": (made(wrap="model = net()"), {"LT619"}, "apart"),
}

HEALTHY = {
    "sampler": loaded(SHARED_SAMPLER, SET_EPOCH) + '''
model.eval()
with torch.no_grad():
    for x, y in DataLoader(data, batch_size=100):
        model.module(x)
total = torch.ones(1)
dist.all_reduce(total)
dist.barrier()
''',
    "shards": loaded("mine = TensorDataset(X[rank::world], Y[rank::world])\nloader = DataLoader(mine, batch_size=20, shuffle=True)"),
    "iterable": '''
class Share(IterableDataset):
    def __iter__(self):
        return ((X[i], Y[i]) for i in range(rank, 400, world))
''' + loaded("loader = DataLoader(Share(), batch_size=20)"),
    "no_sync": made(after="pass").replace("F.cross_entropy(model(x), y).backward()", '''
    for k in range(3):
        with model.no_sync() if k < 2 else contextlib.nullcontext():
            x, y = batch()
            (F.cross_entropy(model(x), y) / 3).backward()'''),
    "averaged_by_hand": made(wrap="model = net()", after="[dist.all_reduce(p.grad) for p in model.parameters()]; [p.grad.div_(world) for p in model.parameters()]"),
    "adversarial": '''
G, D = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))), DDP(net())
og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
torch.manual_seed(1 + rank)
one, zero = torch.ones(10, dtype=torch.long), torch.zeros(10, dtype=torch.long)
for step in range(steps):
    fake = G(torch.randn(10, 8))
    od.zero_grad()
    F.cross_entropy(D(torch.randn(10, 16) + 1), one).backward()
    F.cross_entropy(D(fake.detach()), zero).backward()
    od.step()
    og.zero_grad()
    F.cross_entropy(D.module(fake), one).backward()
    og.step()
''',
    "average_and_checkpoint": made(wrap="model = DDP(nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 2)))\naverage = copy.deepcopy(model.module)",
                                   after="[a.data.lerp_(b.data, 0.1) for a, b in zip(average.parameters(), model.module.parameters())]",
                                   before="rank == 0 and step == 30 and torch.save(model.module.state_dict(), os.devnull)"),
    "needed": '''
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.calls = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 2), 0
    def forward(self, x):
        self.calls += 1
        x = self.a(x)
        return self.c(x + self.b(x) if self.calls % 3 else x)
''' + made(wrap="model = DDP(Net(), find_unused_parameters=True)"),
}


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


class Job:
    def __init__(self, lowtide_binary, folder):
        self.binary, self.folder, self.script = lowtide_binary, folder / "out", folder / "program.py"
        self.env = {**os.environ, "NO_COLOR": "1", "LOWTIDE_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}

    def line(self, program, ranks):
        self.script.write_text(HEAD + program + "\nif dist.is_initialized():\n    dist.destroy_process_group()\n")
        return [self.binary, "run", "-o", self.folder, "--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks),
                "--master-port", port(), str(self.script)]

    def __call__(self, program, ranks=2, **env):
        done = subprocess.run(self.line(program, ranks), env={**self.env, **env}, capture_output=True, text=True, timeout=240)
        return done, self.found()

    def found(self, code="LT6"):
        document = json.loads((self.folder / "findings.json").read_text())
        return [f for f in document["findings"] if f["code"].startswith(code)]

    def of(self, word):
        """The line of the program that holds `word`."""
        return [n for n, line in enumerate(self.script.read_text().splitlines(), 1) if word in line]


@pytest.fixture
def job(lowtide_binary, tmp_path):
    return Job(lowtide_binary, tmp_path)


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


def test_a_rank_that_does_not_come_is_named_with_its_line(job):
    program = made(after='''
    if step == 20:
        if rank == 0:
            dist.barrier()          # the others never call it
        else:
            def elsewhere():
                time.sleep(9)       # here
            elsewhere()
            sys.exit(0)''')
    done, found = job(program, LOWTIDE_HANG_SECONDS="3")
    hang = next(f for f in found if f["code"] == "LT614")
    assert "rank 1 did not come" in hang["message"] and "barrier" in hang["message"]
    assert hang["where"][0]["line"] in job.of("# here")
    assert "LT614" in done.stderr


LONG = made(before="time.sleep(0.005)").replace("range(steps)", "range(100000)")


def ranks_of(job, run):
    """pid by rank once both have made 64 steps."""
    deadline = time.time() + 90
    while time.time() < deadline and run.poll() is None:
        texts = [path.read_text() for path in job.folder.glob("facts-rank*.jsonl")]
        if len(texts) == 2 and all('"parameters","step":64,' in text for text in texts):
            return {row["rank"]: row["pid"] for row in (json.loads(text.splitlines()[0]) for text in texts)}
        time.sleep(0.1)
    pytest.fail("the ranks did not begin to step")


def test_a_killed_rank_is_named(job):
    run = subprocess.Popen(job.line(LONG, 2), env=job.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.kill(ranks_of(job, run)[1], signal.SIGKILL)
    assert run.wait(60) != 0
    died = [f for f in job.found() if f["code"] == "LT616"]
    assert len(died) == 1 and "rank 1" in died[0]["message"] and died[0]["severity"] == "error"


def test_a_killed_rank_is_told_from_those_that_the_launcher_ended(job):
    """Nobody saw the order: lowtide itself was stopped, and the launcher's SIGTERM came before the other rank could say more."""
    run = subprocess.Popen(job.line(LONG, 2), env=job.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pids = ranks_of(job, run)
    run.send_signal(signal.SIGSTOP)
    try:
        os.kill(pids[0], signal.SIGSTOP)
        os.kill(pids[0], signal.SIGTERM)
        os.kill(pids[1], signal.SIGKILL)
        os.kill(pids[0], signal.SIGCONT)
        time.sleep(1)
    finally:
        run.send_signal(signal.SIGCONT)
    assert run.wait(60) != 0
    died = [f for f in job.found() if f["code"] == "LT616"]
    assert len(died) == 1 and "rank 1" in died[0]["message"], died


def test_a_crash_in_native_code_is_named(job):
    done, found = job(made(before="if rank == 1 and step == 40: import ctypes; ctypes.string_at(0)"))
    died = [f for f in found if f["code"] == "LT616"]
    assert done.returncode != 0 and len(died) == 1
    assert "rank 1" in died[0]["message"] and "SIGSEGV" in died[0]["message"]


def test_a_stopped_rank_is_named_while_it_is_stopped(job):
    run = subprocess.Popen(job.line(LONG, 2), env=job.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = ranks_of(job, run)[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        deadline, text = time.time() + 20, ""
        while "LT615" not in text and time.time() < deadline:
            time.sleep(0.2)
            text = "".join(path.read_text() for path in job.folder.glob("findings-observer-*.jsonl"))
        assert "rank 0" in text and "LT615" in text
    finally:
        os.kill(pid, signal.SIGCONT)
        time.sleep(1)
        run.terminate()
        run.wait(60)
    assert next(f for f in job.found() if f["code"] == "LT615")["severity"] == "note", "it went on"


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
