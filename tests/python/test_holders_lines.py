"""The holder is named first, and the line of the user's where it grows: leaks whose holder lies in a library's object, goes
by another name, or is entered from C.

Each kind is a function that returns (step, words). The line wanted is the one marked `# here` inside the kind.
"""
import asyncio
import collections
import concurrent.futures
import contextlib
import contextvars
import ctypes
import dataclasses
import functools
import inspect
import itertools
import logging
import logging.handlers
import queue
import threading
import types
import unittest.mock
import weakref

import pytest

from growing import Kinds, both_ways, grown, tensor, text, torch  # noqa: F401

KINDS = kind = Kinds()


@kind
def tasks_kept_in_a_set():
    loop, tasks, never = asyncio.new_event_loop(), set(), asyncio.Event()

    async def deliver(batch):
        await never.wait()
        return batch

    def step():
        task = loop.create_task(deliver(tensor()))
        tasks.add(task)  # here
        loop.run_until_complete(asyncio.sleep(0))

    return step, ["tasks[*]"]


LOG = logging.getLogger("lowtide-lines")


@kind
def handler_that_is_never_flushed():
    LOG.propagate = False
    LOG.setLevel(logging.INFO)
    LOG.addHandler(logging.handlers.MemoryHandler(10**6, flushLevel=logging.CRITICAL))

    def step():
        LOG.info("loss %s", tensor())  # here

    return step, ["buffer[*]"]


class Encoder:
    @functools.cache  # noqa: B019: the fault under test; here
    def encode(self, text):
        return tensor()


@kind
def memoized_method():
    encoder, numbers = Encoder(), itertools.count()
    return lambda: encoder.encode(f"text {next(numbers)}"), ["Encoder.encode"]


SHARED = []


@dataclasses.dataclass
class Stats:
    records: list = dataclasses.field(default_factory=lambda: SHARED)


@kind
def default_factory_that_shares():
    def step():
        stats = Stats()
        stats.records.append(tensor())  # here

    return step, ["SHARED[*]"]


@kind
def closure_in_an_optimizer_hook():
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def attach():
        norms = []

        def hook(*_):
            norms.append(tensor())  # here

        optimizer.register_step_post_hook(hook)

    attach()

    def step():
        weight.grad = torch.zeros(4)
        optimizer.step()

    return step, ["norms[*]"]


VARIABLE = contextvars.ContextVar("VARIABLE", default=None)


@kind
def tokens_of_a_context_variable():
    tokens = []
    return lambda: tokens.append(VARIABLE.set(tensor())), ["tokens[*]"]  # here


@kind
def finalizers_of_what_lives_on():
    model = torch.nn.Linear(2, 2)
    return lambda: weakref.finalize(model, len, tensor()), ["weakref.finalize"]  # here


@kind
def callbacks_of_a_future_that_is_never_done():
    future = concurrent.futures.Future()
    return lambda: future.add_done_callback(functools.partial(len, tensor())), ["future._done_callbacks"]  # here


@kind
def iterators_chained_on():
    state = types.SimpleNamespace(source=iter(()))

    def step():
        state.source = itertools.chain(state.source, [tensor()])  # here

    return step, ["state.source"]


@kind
def scopes_nested_on():
    state = types.SimpleNamespace(scope=collections.ChainMap())

    def step():
        state.scope = state.scope.new_child({"loss": tensor()})  # here

    return step, ["state.scope"]


@kind
def exit_stack_that_stays_open():
    stack = contextlib.ExitStack()
    return lambda: stack.callback(len, tensor()), ["stack._exit_callbacks"]  # here


@kind
def calls_that_a_mock_remembers():
    writer = unittest.mock.Mock()
    return lambda: writer.add_scalar("loss", tensor()), ["writer"]  # here


@kind
def queue_written_in_c():
    done = queue.SimpleQueue()
    return lambda: done.put(tensor()), ["done"]  # here


@kind
def threads_that_wait():
    gate = threading.Event()

    def serve(batch):
        gate.wait()
        return batch

    def step():
        threading.Thread(target=serve, args=(tensor(),), daemon=True).start()  # here

    return step, ["threading._active", "batch"]


@kind
def callbacks_held_by_c():
    callback_type, callbacks = ctypes.CFUNCTYPE(None), []

    def step():
        kept = tensor()
        callbacks.append(callback_type(lambda: kept.sum()))  # here

    return step, ["callbacks[*]"]


@kind
def attributes_named_as_it_runs():
    model, numbers = torch.nn.Linear(2, 2), itertools.count()
    return lambda: setattr(model, f"cache_{next(numbers)}", tensor()), ["model.cache_"]  # here


def wanted_line(function):
    holder = Encoder if function is memoized_method else function
    lines, first = inspect.getsourcelines(holder)
    return first + next(i for i, text in enumerate(lines) if text.rstrip().endswith("here"))


@pytest.mark.parametrize("name", KINDS)
def test_the_holder_and_the_line_are_named(name):
    step, words = KINDS[name]()
    rows = grown(step)
    assert rows, "nothing grew"
    first = rows[0]
    named = [text(row) for row in rows[:4]]
    assert any(word in named[0] for word in words), named
    assert (first["file"], first["line"]) == (__file__, wanted_line(KINDS[name])), named[0]
