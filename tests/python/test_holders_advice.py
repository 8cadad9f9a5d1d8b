"""What is advised fits the kind of holder, and the line is the user's: kinds that look like others.

Each kind is a function that returns (step, words of the path, code, words of the advice). The line wanted is the one marked
`# here` inside the kind.
"""
import atexit
import inspect
import itertools
import logging
import logging.handlers
import queue

import pytest

from growing import Kinds, grown, tensor, text, torch

KINDS = kind = Kinds()


@kind
def hooks_of_a_module():
    model = torch.nn.Linear(2, 2)

    def step():
        mask = tensor()
        model.register_forward_hook(lambda module, args, out: out * mask.sum())  # here

    return step, ["model._forward_hooks[*]"], "LT404", ["handle.remove()"]


class Prototypes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(1))
        self.seen = 0

    def remember(self, features):
        self.register_buffer(f"proto_{self.seen}", features)  # here
        self.seen += 1


@kind
def buffers_with_numbers():
    model = Prototypes()
    return lambda: model.remember(tensor()), ["model.proto_*"], "LT402", ["`proto_*`"]


class Anderson(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "directions" not in state:
                    state["directions"] = []
                state["directions"].append(tensor())  # here


@kind
def list_in_an_optimizers_state():
    opt = Anderson([torch.nn.Parameter(torch.zeros(2))])
    return lambda: opt.step(), ["['directions'][*]"], "LT402", ["empty it"]


class Guard:
    def __init__(self):
        self.states = []

    def note(self):
        self.states.append({"weights": tensor()})  # here


@kind
def states_of_no_optimizer():
    guard = Guard()
    return lambda: guard.note(), ["guard.states[*]"], "LT402", ["empty it"]


class Inbox:
    def __init__(self):
        self.inbox = queue.Queue()

    def consume(self):
        while True:
            self.inbox.get()

    def log(self, value):
        self.inbox.put(value)  # here


@kind
def queue_that_nobody_reads():
    logger = Inbox()
    return lambda: logger.log(tensor()), ["inbox.queue[*]"], "LT402", ["empty it"]


@kind
def logging_handler_in_a_variable():
    handler = logging.handlers.MemoryHandler(10**6, flushLevel=logging.CRITICAL)
    journal = logging.Logger("journal", logging.INFO)
    journal.addHandler(handler)

    def step():
        journal.info("loss %s", tensor())  # here

    return step, ["buffer[*]"], "LT402", []


class Memory:
    def __init__(self):
        self.rows = torch.zeros(0)

    def keep(self):
        self.rows = torch.cat([self.rows, tensor()])  # here


@kind
def tensor_made_anew_and_larger():
    memory = Memory()
    return lambda: memory.keep(), ["memory.rows"], "LT402", ["rows[-k:]"]


class Node:
    def __init__(self, before):
        self.before, self.value = before, tensor()


class Chain:
    def __init__(self):
        self.last = None

    def add(self):
        self.last = Node(self.last)  # here


@kind
def chain():
    critic = Chain()
    return lambda: critic.add(), ["critic.last"], "LT402", ["cut the chain"]


class Trainer:
    def __init__(self):
        self.failures = {}
        self.weight = torch.nn.Parameter(torch.ones(256))

    def run(self, number):
        scaled = tensor() * self.weight
        try:
            raise ArithmeticError(scaled.shape)
        except ArithmeticError as error:
            self.failures[number] = error  # here


@kind
def exceptions_with_graphs():
    trainer, numbers = Trainer(), itertools.count()
    return lambda: trainer.run(next(numbers)), ["trainer.failures[*]"], "LT409", ["str(error)"]


class Later:
    def __init__(self):
        self.callbacks = []


@kind
def closures_in_an_attribute():
    waiting = Later()

    def step():
        kept = tensor()
        waiting.callbacks.append(lambda: kept)  # here

    return step, ["waiting.callbacks[*]"], "LT402", ["only ever added to"]


@kind
def functions_for_the_end():
    def step():
        atexit.register(len, [tensor()])  # here

    return step, ["atexit callbacks"], "LT403", ["register one function once"]


def line_of(function):
    """The marked line of the kind: in it, or in the class above it."""
    lines = inspect.getsource(inspect.getmodule(function)).splitlines()
    first = inspect.getsourcelines(function)[1]
    inside = [n for n, line in enumerate(lines, 1) if line.endswith("# here") and n > first]
    above = [n for n, line in enumerate(lines, 1) if line.endswith("# here") and n < first]
    own = "# here" in inspect.getsource(function)
    return inside[0] if own else above[-1]


@pytest.mark.parametrize("name", KINDS)
def test_place_and_advice(name):
    step, words, code, advice = KINDS[name]()
    row = grown(step)[0]
    assert all(word in text(row) for word in words), text(row)
    assert row["line"] == line_of(KINDS[name]), (row["file"], row["line"])
    assert row["code"] == code, row["help"]
    assert all(word in row["help"] for word in advice), row["help"]
    assert row["help_zh"] and row["message"].startswith(row["path"])
    assert row["retained_bytes"] >= row["growth_bytes"] / 2, "what is told of all that is held, not of one of many"
