"""Where a rank's time goes: waiting for other ranks, told apart from its own work.

Two kinds of waits are seen. Collectives that the script calls: the methods of PyTorch's process groups and ``Work.wait``
get a stand-in in C. The gradients of a wrapped model: in each backward a callback is queued that the autograd engine
runs when all is computed, before the wrapper's own one waits for the last bucket; the time from there to backward's
return is waiting. (On a GPU both only launch work; there the figures say little.) Sums go to the ring with each step;
what is being waited for now stands in the ring's control words, so that the outside can tell who waits for whom.
"""
from lowtide import _track

COLLECTIVES = ("allreduce", "allreduce_coalesced", "broadcast", "allgather", "_allgather_base", "all_gather_single",
               "allgather_coalesced", "allgather_into_tensor_coalesced", "all_gather_single_coalesced", "reduce", "gather",
               "scatter", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single",
               "reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced", "alltoall", "alltoall_base",
               "all_to_all_single", "barrier", "monitored_barrier")
POINT_TO_POINT = ("send", "recv", "recv_anysource")


class Waits:
    def __init__(self, watch, wrapped):
        self.watch, self.wrapped, self.alive, self.failure = watch, wrapped, True, None
        self.counts = {}       # of collectives over all ranks
        self.last = "a collective"
        self.computed = False  # backward has computed and waits

    def install(self):
        native = self.watch.torch._C._distributed_c10d
        for name in COLLECTIVES + POINT_TO_POINT:
            original = native.ProcessGroup.__dict__.get(name)
            if original is not None:
                setattr(native.ProcessGroup, name, _track.Marked(original, self._entering(name), self._left))
        native.Work.wait = _track.Marked(native.Work.wait, self._waiting, self._left)
        autograd = self.watch.torch.autograd
        autograd.backward = _track.Marked(autograd.backward, self._before_backward, self._after_backward)

    def _entering(self, name):
        counts = self.counts if name in COLLECTIVES else None
        world, enter = self.watch.world, _track.enter_wait

        def entering(group, *args):
            self.last = name
            enter(name)
            if counts is not None and group.size() == world:
                counts[name] = counts.get(name, 0) + 1

        return entering

    def _waiting(self, *args):
        _track.enter_wait(self.last)

    @staticmethod
    def _left(token, ok, *args):
        _track.leave_wait()

    def _before_backward(self, *args):
        self.watch.backwards += 1
        root = args[0] if args else None
        if isinstance(root, (tuple, list)):
            root = root[0] if root else None
        self.wrapped.before_backward(root)
        self.computed = False
        if self.wrapped.models and getattr(root, "grad_fn", None) is not None:
            return root.register_hook(self._in_backward)
        return None

    def _in_backward(self, gradient):
        self.watch.torch.autograd.Variable._execution_engine.queue_callback(self._computed)

    def _computed(self):
        if not self.computed:
            self.computed = True
            _track.enter_wait("gradients")

    def _after_backward(self, handle, ok, *args):
        if self.computed:
            self.computed = False
            _track.leave_wait()
        if handle is not None:
            handle.remove()

    def end(self):
        if self.counts:
            self.watch.facts.write("collectives", step=self.watch.step() - 1, counts=self.counts)
