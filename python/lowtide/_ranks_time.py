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

    def install(self):
        watch, torch = self.watch, self.watch.torch
        native, left = torch._C._distributed_c10d, _track.Gate("left", watch, None)
        watch.last = "a collective"
        for name in COLLECTIVES + POINT_TO_POINT:
            original = native.ProcessGroup.__dict__.get(name)
            if original is not None:
                entering = _track.Gate("collective", watch, name, name in COLLECTIVES)
                setattr(native.ProcessGroup, name, _track.Marked(original, entering, left))
        native.Work.wait = _track.Marked(native.Work.wait, _track.Gate("waiting", watch, None), left)
        computed = _track.Gate("computed", watch, "gradients")
        in_backward = _track.Gate("in backward", watch, torch.autograd.Variable._execution_engine.queue_callback, computed)
        before = _track.Gate("rank before backward", watch, self.wrapped.before_backward, (torch.Tensor, in_backward))
        after = _track.Gate("rank after backward", watch, None)
        torch.autograd.backward = _track.Marked(torch.autograd.backward, before, after)

    def end(self):
        if self.watch.counts:
            self.watch.facts.write("collectives", step=self.watch.step() - 1, counts=self.watch.counts)
