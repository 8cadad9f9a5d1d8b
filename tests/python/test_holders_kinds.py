"""Who holds it: one leak of each kind, in this process, between two censuses.

Each kind is a function that builds what leaks and returns (step, words): after thirty calls of `step` between two marks
the first row must name the holder with one of the words.
"""
import asyncio
import collections
import contextvars
import functools
import heapq
import io
import itertools
import logging
import queue
import sys
import threading
import types
import weakref

import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")
from growing import STEPS, Kinds, both_ways, grown, tensor, text, torch  # noqa: E402, F401

KINDS = kind = Kinds()


GLOBAL_HISTORY = {"loss": []}


@kind
def global_dict_of_lists():
    return lambda: GLOBAL_HISTORY["loss"].append(tensor()), ["GLOBAL_HISTORY['loss'][*]"]


@kind
def fifo_queue():
    fifo = queue.Queue()
    return lambda: fifo.put(tensor()), ["fifo.queue[*]"]


@kind
def unbounded_deque():
    recent = collections.deque()
    return lambda: recent.append(tensor()), ["recent[*]"]


@kind
def thread_local():
    local = threading.local()
    local.seen = []
    return lambda: local.seen.append(tensor()), ["seen[*]"]


CONTEXT_VARIABLE = contextvars.ContextVar("CONTEXT_VARIABLE", default=None)


@kind
def context_variable():
    CONTEXT_VARIABLE.set([])
    return lambda: CONTEXT_VARIABLE.get().append(tensor()), ["context", "CONTEXT_VARIABLE"]


@kind
def generator_local():
    def produce():
        produced = []
        while True:
            produced.append(tensor())
            yield len(produced)

    source = produce()
    return lambda: next(source), ["produced[*]"]


@kind
def asyncio_task():
    loop = asyncio.new_event_loop()
    pending = []

    async def wait(payload):
        await asyncio.sleep(3600)
        return payload

    def step():
        pending.append(loop.create_task(wait(tensor())))
        loop.run_until_complete(asyncio.sleep(0))

    return step, ["pending[*]", "wait", "_scheduled", "loop"]


@functools.lru_cache(maxsize=None)
def cached_mask(size):
    return torch.zeros(200 + size)


@kind
def cache_without_limit():
    cached_mask.cache_clear()
    numbers = itertools.count()
    return lambda: cached_mask(next(numbers)), ["cached_mask"]


class Registry:
    instances = []


@kind
def class_attribute():
    return lambda: Registry.instances.append(tensor()), ["Registry.instances[*]"]


def remember(value, memory=[]):  # noqa: B006: the fault under test
    memory.append(value)


@kind
def default_argument():
    return lambda: remember(tensor()), ["memory[*]"]


@kind
def closure_variable():
    def make():
        kept = []
        return lambda: kept.append(tensor())

    return make(), ["kept[*]"]


@kind
def tracebacks():
    errors = []

    def fail():
        activations = tensor()
        raise ValueError(activations.shape)

    def step():
        try:
            fail()
        except ValueError as error:
            errors.append(error)

    return step, ["errors[*]"]


class KeepingHandler(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


@kind
def logging_handler():
    logger = logging.getLogger("lowtide-test")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    handler = KeepingHandler()
    logger.handlers[:] = [handler]
    return lambda: logger.info("batch %s", tensor()), ["records[*]"]


@kind
def weak_cache_that_is_not_weak():
    cache = weakref.WeakKeyDictionary()

    class Key:
        pass

    def step():
        key = Key()
        cache[key] = (key, tensor())  # the value holds the key

    return step, ["cache"]


@kind
def views_of_arrays():
    heads = []
    return lambda: heads.append(np.zeros(512)[:1]), ["heads[*]"]


@kind
def object_array():
    slots, numbers = np.empty(4096, dtype=object), itertools.count()

    def step():
        slots[next(numbers)] = tensor()

    return step, ["slots[*]"]


@kind
def partials():
    callbacks = []
    return lambda: callbacks.append(functools.partial(print, tensor())), ["callbacks[*]"]


@kind
def bound_methods():
    listeners = []

    class Batch:
        def __init__(self):
            self.data = tensor()

        def done(self):
            pass

    return lambda: listeners.append(Batch().done), ["listeners[*]"]


@kind
def set_of_objects():
    members = set()
    return lambda: members.add(tensor()), ["members[*]"]


@kind
def heap_queue():
    heap, numbers = [], itertools.count()
    return lambda: heapq.heappush(heap, (next(numbers), tensor())), ["heap[*]"]


@kind
def linked_list():
    class Node:
        __slots__ = ("value", "next")

        def __init__(self, value, after):
            self.value, self.next = value, after

    chain = types.SimpleNamespace(head=None)

    def step():
        chain.head = Node(tensor(), chain.head)

    return step, ["chain.head"]


@kind
def graph_of_a_running_sum():
    weight = torch.ones(16, requires_grad=True)
    state = types.SimpleNamespace(total=torch.zeros(()))

    def step():
        state.total = state.total + (weight * 2).sum()

    return step, ["state.total"]


@kind
def hooks_never_removed():
    layer = torch.nn.Linear(4, 4)

    def step():
        kept = tensor()
        layer.register_forward_hook(lambda *_: kept)

    return step, ["_forward_hooks"]


@kind
def hook_on_a_parameter():
    weight = torch.ones(4, requires_grad=True)

    def step():
        kept = tensor()
        weight.register_hook(lambda grad: grad * kept[0])

    return step, ["weight", "hook"]


@kind
def buffer_of_a_module():
    class Memory(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("bank", torch.zeros(0, 64))

        def forward(self):
            self.bank = torch.cat([self.bank, torch.zeros(4, 64)])

    memory = Memory()
    return memory, [".bank"]


@kind
def bytes_in_memory():
    log = io.BytesIO()
    return lambda: log.write(b"x" * 4096), ["log"]


@kind
def byte_array():
    buffer = bytearray()
    return lambda: buffer.extend(b"x" * 4096), ["buffer"]


@kind
def floats_in_a_list():
    curve = []
    return lambda: curve.extend(float(i) + 0.5 for i in range(100)), ["curve"]


@kind
def saved_tensors_with_hooks():
    outputs = []
    weight = torch.ones(256, requires_grad=True)

    def step():
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
            outputs.append((weight * torch.ones(256)).sum())

    return step, ["outputs[*]"]


@kind
def optimizer_groups():
    weight = torch.nn.Parameter(torch.zeros(256))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step():
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(256))]})

    return step, ["optimizer.param_groups[*]"]


@kind
def batches_of_a_cycle():
    source = itertools.cycle(torch.zeros(64) for _ in range(10_000))
    return lambda: next(source), ["source.<saved>", "source"]


@kind
def imported_package():
    package = types.ModuleType("leaky_package")
    exec("HISTORY = []\ndef note(value):\n    HISTORY.append(value)\n", package.__dict__)
    sys.modules["leaky_package"] = package
    return lambda: package.note(tensor()), ["leaky_package.HISTORY[*]"]


@pytest.mark.parametrize("name", KINDS)
def test_the_holder_is_named_first(name):
    step, words = KINDS[name]()
    rows = grown(step)
    assert rows, "nothing grew"
    assert any(word in text(rows[0]) for word in words), [text(row) for row in rows[:4]]


def test_rates_are_bytes_per_step_and_retained_bytes_are_of_all():
    held = []
    rows = grown(lambda: held.append(torch.zeros(1024)))
    assert rows[0]["path"] == "held[*]"
    assert 4096 <= rows[0]["bytes_per_step"] <= 4096 * 1.4
    assert rows[0]["retained_bytes"] >= 40 * 4096
    assert rows[0]["pool"] == "cpu" and not rows[0]["via_autograd"]


def test_a_graph_is_told_and_its_nodes_are_counted():
    weight, outputs = torch.ones(16, requires_grad=True), []
    rows = grown(lambda: outputs.append((weight * 2).sum()))
    assert rows[0]["path"] == "outputs[*]" and rows[0]["via_autograd"]
    assert rows[0]["autograd_nodes"] >= 2 * STEPS


def test_several_leaks_are_all_named_the_largest_first():
    large, small = [], {}

    def step():
        large.append(torch.zeros(2048))
        small[len(small)] = torch.zeros(512)

    rows = grown(step)
    assert [row["path"] for row in rows[:2]] == ["large[*]", "small[*]"]


def test_the_line_is_where_it_grows():
    kept = []

    def step():
        value = tensor()
        kept.append(value)

    row = grown(step)[0]
    assert row["file"] == __file__
    assert "kept.append(value)" in open(__file__).read().splitlines()[row["line"] - 1]


def healthy_deque():
    recent = collections.deque(maxlen=8)
    return lambda: recent.append(tensor())


def healthy_cache():
    @functools.lru_cache(maxsize=8)
    def mask(size):
        return torch.zeros(256 + size % 16)

    numbers = itertools.count()
    return lambda: mask(next(numbers))


def healthy_list():
    outputs = []

    def step():
        outputs.clear()
        outputs.extend(tensor() for _ in range(4))

    return step


def healthy_training():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()

    return step


@pytest.mark.parametrize("make", [healthy_deque, healthy_cache, healthy_list, healthy_training])
def test_what_does_not_grow_is_not_named(make):
    rows = grown(make())
    assert all(row["bytes_per_step"] < 200 for row in rows), [(text(row), row["bytes_per_step"]) for row in rows]
