"""Finds steps, epochs, validation and checkpoints without touching the script.

Hooks that PyTorch offers are used where there are any; a few functions are replaced by a callable in C that shows in no
traceback (``_track.Marked``). Nothing here raises into user code: what fails is counted.

What ends a step, in order of authority: ``lowtide.step()``, an optimizer's step, a DataLoader's batch, a backward call, a
call of the outermost module. The highest one seen so far counts, the others are passed over.
"""
import atexit
import os
import sys
import time
import weakref

from lowtide import _bootstrap, _track

MODULE, BACKWARD, LOADER, OPTIMIZER, USER = 1, 2, 3, 4, 5
PHASE_STEP, PHASE_VALIDATION, PHASE_CHECKPOINT, PHASE_OTHER = 0, 1, 2, 3
MARK_EPOCH, MARK_VALIDATION, MARK_CHECKPOINT, MARK_USER, MARK_EVAL, MARK_NO_GRAD, MARK_DATA = range(1, 8)
POINT, BEGIN, END = 0, 1, 2

PATIENCE = 64       # events of a lower source before it counts although an optimizer was made
FIRST_PATIENCE = 1  # the same when no optimizer was made
LEADER_AWAY = 16    # steps of another optimizer after which it leads

torch = None
_step, _phase = _track.step, _track.phase


class State(_track.MarkState):
    """What the hooks remember. One per process; the fields of the base are shared with the hooks in C."""

    def __init__(self):
        self.steps = 0
        self.leader = 0             # id of the optimizer whose step ends a step
        self.away = 0               # steps of others since the leader's
        self.other = 0              # id of the optimizer that stepped last without leading
        self.led = None             # weak reference: the first parameter of the leader
        self.open_blocks = 0        # no_grad blocks that are validations
        self.waited = {}            # source -> events that did not count yet
        self.optimizers = False     # an optimizer was made
        self.validating = False
        self.epoch = 0
        self.loader = 0             # id of the iterator whose batches count
        self.loaders = 0
        self.batches = 0            # that the loader that counts has given
        self.trained_loader = 0     # id of the iterator that steps were counted in
        self.depth = 0              # of nested Module.train calls
        self.trained = None         # weak reference: the module last put in training mode
        self.no_grad_step = 0


state = State()


def after_fork():
    state.__init__()
    state.optimizers = True
    if torch is not None:
        state.optimizers = _optimizer_made()


def install():
    global torch
    torch = sys.modules["torch"]
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(_track.Gate("step", state, on_optimizer_step, _bootstrap.answer))
    for hook in (_hook_loaders, _hook_modules, _hook_backward, _hook_save, _hook_no_grad, _hook_distributed, _hook_fallback):
        try:
            hook()
        except Exception:
            _track.lose_mark()


def _replace(owner, name, before, after):
    original = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, _track.Marked(original, before, after))


# -- steps --------------------------------------------------------------------------------------------------------

def on_optimizer_step(optimizer):
    """After the step of an optimizer that does not lead, or in a validation. Several optimizers in one step (GANs, one
    per parameter) count once: the first one seen leads, until others step LEADER_AWAY times without it, or one made
    anew for the same parameters (each epoch, each stage) steps twice without it."""
    if state.validating:
        end_validation()
    me = id(optimizer)
    if me != state.leader:
        state.away += 1
        again, state.other = state.other == me and state.away > 1, me
        first = _first_parameter(optimizer)
        replaced = again and first is not None and state.led is not None and state.led() is first
        if state.leader and state.away <= LEADER_AWAY and not replaced:
            return
        state.leader = me
        state.led = weakref.ref(first) if first is not None else None
    state.away = 0
    _phase(PHASE_STEP)
    bits = _counted(_step(OPTIMIZER))
    if bits > 1:
        _bootstrap.answer(bits)


def _first_parameter(optimizer):
    try:
        return optimizer.param_groups[0]["params"][0]
    except (AttributeError, IndexError, KeyError, TypeError):
        return None


def _counted(bits):
    if bits:
        state.steps += 1
        if state.loader:
            state.trained_loader = state.loader
    return bits


def lower_step(source):
    """A step may have ended by a source below the optimizer."""
    if not _track.wants(source):
        return
    waited = state.waited.get(source, 0)
    if waited < PATIENCE:
        state.optimizers = state.optimizers or _optimizer_made()
        if waited < (PATIENCE if state.optimizers else FIRST_PATIENCE if source < LOADER else 0):
            state.waited[source] = waited + 1
            return
        state.waited[source] = PATIENCE
    bits = _counted(_step(source))
    if bits > 1:
        _bootstrap.answer(bits)


def _optimizer_made():
    """Optimizer.__init__ marks the step function of its class; nothing else tells that one exists."""
    waiting = list(torch.optim.Optimizer.__subclasses__())
    while waiting:
        kind = waiting.pop()
        if getattr(getattr(kind, "step", None), "hooked", False):
            return True
        waiting.extend(kind.__subclasses__())
    return False


def user_step():
    bits = _counted(_step(USER))
    if bits > 1:
        _bootstrap.answer(bits)


# -- phases -------------------------------------------------------------------------------------------------------

def begin_validation(why):
    if state.validating or state.steps == 0:
        return
    state.validating = True
    _phase(PHASE_VALIDATION)
    _track.mark(MARK_VALIDATION, BEGIN, state.epoch, None, why)


def end_validation():
    if state.validating:
        state.validating = False
        _phase(PHASE_STEP)
        _track.mark(MARK_VALIDATION, END, state.epoch)


def _hook_modules():
    _replace(torch.nn.Module, "train", _before_train, _after_train)


def _before_train(*args):
    state.depth += 1


def _after_train(token, ok, *args):
    state.depth -= 1
    if state.depth == 0 and ok and args:
        module = args[0]
        if module.training:
            state.trained = weakref.ref(module)
            end_validation()
        elif not _part_of_trained(module):
            begin_validation("eval()")


def _part_of_trained(module):
    """A frozen part put back to eval() after model.train() is no validation."""
    root = state.trained() if state.trained is not None else None
    return root is not None and root is not module and any(part is module for part in root.modules())


def _hook_no_grad():
    entered = _track.Gate("no_grad entered", state, _entered_no_grad)
    left = _track.Gate("no_grad left", state, _left_no_grad)
    for kind in (torch.no_grad, torch.inference_mode):
        _replace(kind, "__enter__", None, entered)
        _replace(kind, "__exit__", None, left)


def _entered_no_grad(block):
    # Code inside torch opens such blocks for its own ends.
    if not _inside_torch(sys._getframe(1)):
        block.__dict__["_lowtide_validation"] = True
        state.open_blocks += 1
        begin_validation(type(block).__name__)


def _left_no_grad(block):
    if block.__dict__.pop("_lowtide_validation", False):
        state.open_blocks -= 1
        end_validation()


def _inside_torch(frame):
    name = frame.f_globals.get("__name__") if frame is not None else None
    return name is None or name == "torch" or name.startswith("torch.")


# -- data ---------------------------------------------------------------------------------------------------------

def _hook_loaders():
    from torch.utils.data import dataloader
    from torch.utils.data.distributed import DistributedSampler

    _replace(dataloader._BaseDataLoaderIter, "__next__", _before_batch, _after_batch)
    many = dataloader._MultiProcessingDataLoaderIter
    _replace(many, "__init__", None, _workers_began)
    _replace(many, "_shutdown_workers", _workers_end, None)
    _replace(DistributedSampler, "set_epoch", None, _epoch_set)
    if os.environ.get("LOWTIDE_CENSUS") != "0":
        from lowtide import _census_workers

        _census_workers.install()


def _before_batch(iterator):
    me = id(iterator)
    if iterator._num_yielded == 0:
        _loader_began(iterator)
    elif me == state.loader or not state.loader:
        lower_step(LOADER)
    return time.monotonic_ns()


def _loader_began(iterator):
    me = id(iterator)
    if torch.is_grad_enabled() or state.steps == 0:
        if not state.validating:
            state.loader = me
            _phase(PHASE_STEP)
    else:
        begin_validation("DataLoader under no_grad")


def _after_batch(began, ok, iterator):
    _track.add_data_wait(time.monotonic_ns() - began)
    if id(iterator) == state.loader:
        state.batches += 1
        if not ok:
            _loader_ended(iterator)


def _loader_ended(iterator):
    trained = state.trained_loader == state.loader
    state.loader = state.trained_loader = 0
    if trained:
        state.epoch += 1
        _track.set_epoch(state.epoch)
        _track.mark(MARK_EPOCH, END, state.epoch, None, f"{iterator._num_yielded} batches")
        _phase(PHASE_OTHER)


def _workers_began(token, ok, iterator, *args):
    state.loaders += 1
    for number, worker in enumerate(getattr(iterator, "_workers", ())):
        _track.add_worker(worker.pid, state.loaders, number)


def _workers_end(iterator):
    for worker in getattr(iterator, "_workers", ()):
        _track.end_worker(worker.pid)


def _epoch_set(token, ok, sampler, *args):
    _track.mark(MARK_EPOCH, POINT, state.epoch, getattr(sampler, "epoch", None), "set_epoch")


# -- checkpoints ----------------------------------------------------------------------------------------------------

def _hook_save():
    _replace(torch, "save", _before_save, _after_save)
    torch.serialization.save = torch.save


def _before_save(*args):
    _track.mark(MARK_CHECKPOINT, BEGIN, state.epoch)
    return _phase(PHASE_CHECKPOINT)


def _after_save(before, ok, *args):
    _phase(before)
    _track.mark(MARK_CHECKPOINT, END, state.epoch)


# -- loops without an optimizer ---------------------------------------------------------------------------------------

def _hook_backward():
    _replace(torch.autograd, "backward", None, _track.Gate("wanted", state, lambda: lower_step(BACKWARD)))


def _hook_distributed():
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    if distributed is None or not hasattr(distributed, "init_process_group"):
        return
    _replace(distributed, "init_process_group", None, _group_made)
    torch.distributed.init_process_group = distributed.init_process_group


def _group_made(token, ok, *args):
    if ok and not _bootstrap.is_worker:
        _track.set_rank(*_bootstrap._rank())
        if _bootstrap._rank()[2] not in (None, 0, 1):
            from lowtide import _ranks

            _ranks.begin()


def _hook_fallback():
    _track.call_later(2.0, _look_for_modules)
    atexit.register(_track.cancel_later)


def _look_for_modules():
    """Two seconds after torch was imported: if nothing has marked a step, calls of the outermost module will."""
    from lowtide import _modules

    if state.steps == 0:
        _modules.install()
