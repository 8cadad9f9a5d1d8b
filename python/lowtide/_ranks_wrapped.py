"""Models wrapped in DistributedDataParallel: whether the wrapper is used, and what was changed behind its back.

How often gradients are averaged is counted where the wrapper prepares its reducer; nothing of the model or the wrapper is
replaced. One finding per kind of mistake, each in a function of its own (``CHECKS``).
"""
import sys
import weakref

from lowtide import _ranks_checks, _ranks_parameters, _track

LEARNED = 32  # steps of a model that are all looked at


class Model:
    """One wrapped model, seen from its optimizer's step to the next."""

    def __init__(self, ddp, number):
        module = ddp.module
        self.ddp, self.number = weakref.ref(ddp), number
        self.kind = type(module).__name__
        self.at_wrap = {name: (weakref.ref(p), p.requires_grad, str(p.device)) for name, p in module.named_parameters()}
        self.ids = {id(p) for p in module.parameters()}
        self.module_ids = {id(m) for m in module.modules()}
        self.ids_of_wrapped = id(ddp)
        self.find_unused = bool(getattr(ddp, "find_unused_parameters", False))
        self.static = bool(getattr(ddp, "static_graph", False))
        self.broadcasts = bool(getattr(ddp, "broadcast_buffers", True))
        self.untold = bool(getattr(ddp, "_use_python_reducer", False) or getattr(ddp, "_delay_all_reduce_all_params", False))
        self.syncs = self.total_syncs = 0     # forwards whose backward averages: since the step before, and all
        self.backwards_before = 0
        self.steps = 0
        self.owned = False                    # an optimizer steps its parameters
        self.bypassed = 0
        self.bypass_place, self.inside = (None, None), False
        self.windows = 0                      # accumulation windows in a row that averaged in each backward
        self.sites = set()
        self.walks = self.unused_seen = 0
        self.place = (None, None)

    def named(self):
        ddp = self.ddp()
        return list(ddp.module.named_parameters()) if ddp is not None else []

    def gone(self, key):
        reference = self.at_wrap[key][0]
        return reference()

    def batch_norms(self):
        ddp = self.ddp()
        if ddp is None:
            return []
        norm = sys.modules["torch"].nn.modules.batchnorm
        return [(name, m) for name, m in ddp.module.named_modules()
                if isinstance(m, norm._BatchNorm) and not isinstance(m, norm.SyncBatchNorm) and m.track_running_stats
                and m.running_mean is not None]

    def statistics(self):
        """(name, buffer) of batch statistics that the wrapper does not broadcast."""
        return [] if self.broadcasts else [(f"{name}.running_mean", m.running_mean) for name, m in self.batch_norms()[:4]]


class Wrapping:
    def __init__(self, watch):
        self.watch, self.alive, self.failure = watch, True, None
        self.models = {}        # id(reducer) -> Model
        self.on_wrap = []       # called with (Model, wrapper)
        self.optimizers = {}    # id(optimizer) -> ids of its parameters
        self.spy = None         # hook of one step that looks where modules are called
        self.usual = None       # the Model whose usual steps are counted in C

    def install(self):
        wrapper = self.watch.torch.nn.parallel.DistributedDataParallel
        wrapper.__init__ = _track.Marked(wrapper.__init__, None, self._wrapped)
        reducer = self.watch.torch._C._distributed_c10d.Reducer
        reducer.prepare_for_forward = _track.Marked(
            reducer.prepare_for_forward, _track.Gate("rank forward", self.watch, self._forward), None)
        join = sys.modules.get("torch.distributed.algorithms.join")
        if join is not None:
            from lowtide import _ranks

            join.Join.__enter__ = _track.Marked(join.Join.__enter__, _ranks._noted_join, None)

    def _wrapped(self, token, ok, ddp, *args):
        if ok:
            self.watch.call(self, "wrapped", ddp)

    def wrapped(self, ddp):
        from lowtide.gradients_names import user_place

        reducer = getattr(ddp, "reducer", None)
        if reducer is None or ddp.process_group.size() != self.watch.world:
            return
        self.settle()
        model = self.models[id(reducer)] = Model(ddp, len(self.models))
        self.watch.models = True
        model.place = user_place(sys._getframe(2))[:2]
        device = next(ddp.module.parameters()).device
        self.watch.facts.write("wrap", model=model.kind, device=device.type, index=device.index, find_unused=model.find_unused,
                               broadcasts=model.broadcasts, batch_norms=len(model.batch_norms()), file=model.place[0],
                               line=model.place[1], **_ranks_checks.device_facts(self.watch.torch, device))
        for call in self.on_wrap:
            call(model, ddp)

    def _forward(self, reducer):
        model = self.models.get(id(reducer))
        if model is not None:
            model.syncs += 1
            model.total_syncs += 1

    def first_model(self):
        for model in self.models.values():
            if model.ddp() is not None:
                return model
        return None

    def first(self):
        model = self.first_model()
        return model.ddp() if model is not None else None

    # -- usual steps ----------------------------------------------------------------------------------------------------
    def go_on_quietly(self, optimizer, step):
        """After a step that Python looked at: the next ones need it only where something is due, as long as one model
        trains, and each step has one averaging forward through its wrapper."""
        model = next(iter(self.models.values()), None)
        if len(self.models) != 1 or not model.owned or model.steps <= LEARNED or model.windows or self.spy is not None:
            return
        watch = self.watch
        ids = self.optimizers.get(id(optimizer))
        if ids is None or model.ids.isdisjoint(ids) or watch.parts[0].global_handle is not None:
            return
        self.usual = model
        watch.syncs = watch.total_syncs = watch.quiet = 0
        watch.backwards_before = model.backwards_before
        watch.quiet_most = next(n for n in range(1, 101) if _ranks_checks.changes_due(model.steps + n)) - 1
        watch.wake = next(n for n in range(step + 1, step + 65) if _ranks_parameters.due(n) or n == step + 64)
        watch.reducer, watch.optimizer = next(iter(self.models)), id(optimizer)

    def settle(self):
        """Takes over what was counted in C; from here on each call comes to Python."""
        model, self.usual = self.usual, None
        if model is None:
            return
        watch = self.watch
        watch.reducer = watch.optimizer = 0
        model.steps += watch.quiet
        model.syncs += watch.syncs
        model.total_syncs += watch.total_syncs
        model.backwards_before = watch.backwards_before

    # -- backward -------------------------------------------------------------------------------------------------------
    def before_backward(self, root):
        self.settle()
        for model in self.models.values():
            if model.steps < 12 or model.syncs > 1 or (model.find_unused and model.steps <= _ranks_checks.WALKS[-1]):
                self.watch.call(self, "note_backward", root)
                return

    def note_backward(self, root):
        for model in self.models.values():
            if model.syncs > 1 or (model.syncs and model.steps < 12):
                if model.windows < _ranks_checks.WINDOWS + 1:
                    from lowtide.gradients_names import user_place

                    model.sites.add(user_place(sys._getframe(3))[:2])
            if model.find_unused and model.syncs and _ranks_checks.walk_due(model):
                _ranks_checks.walk(self.watch, model, root)

    # -- step -----------------------------------------------------------------------------------------------------------
    def before_step(self, optimizer, step):
        if not self.models:
            return
        ids = self.optimizers.get(id(optimizer))
        if ids is None:
            ids = self.optimizers[id(optimizer)] = {id(p) for g in optimizer.param_groups for p in g["params"]}
        for key, model in list(self.models.items()):
            ddp = model.ddp()
            if ddp is None:
                del self.models[key]
                continue
            if not model.ids.isdisjoint(ids):
                self._step_of(model, ddp, optimizer, step)
            else:
                for item in _ranks_checks.other_optimizer(self, model, ddp, optimizer, step):
                    self.watch.add(item)

    def _step_of(self, model, ddp, optimizer, step):
        model.owned = True
        model.steps += 1
        backwards = self.watch.backwards - model.backwards_before
        for check in _ranks_checks.CHECKS:
            for item in check(self, model, ddp, backwards, step):
                self.watch.add(item)
        model.backwards_before = self.watch.backwards
        model.syncs = 0
        model.sites = set()

    # -- where the model is called ------------------------------------------------------------------------------------------
    def spy_on(self, model):
        """For one step: where modules of this model are called from, outside the wrapper."""
        if self.spy is not None:
            return
        hooks, reference = self.watch.torch.nn.modules.module, weakref.ref(model)

        def called(module, args):
            known = reference()
            if known is not None and known.bypass_place == (None, None) and self.watch.torch.is_grad_enabled():
                self.watch.call(self, "called", known, module)

        self.spy = hooks.register_module_forward_pre_hook(called)

    def called(self, model, module):
        from lowtide.gradients_names import user_place

        if id(module) == model.ids_of_wrapped:
            model.inside = True
        if id(module) in model.module_ids or model.inside:
            model.bypass_place = user_place(sys._getframe(4))[:2]

    def stop_spy(self):
        if self.spy is not None:
            self.spy.remove()
            self.spy = None

    def end(self):
        self.stop_spy()
        for model in self.models.values():
            self.watch.facts.write("unused", model=model.kind, find_unused=model.find_unused, walks=model.walks,
                                   seen=model.unused_seen, file=model.place[0], line=model.place[1])
