"""Lets the outside see where a rank stands: its Python stacks go to a file of the run's folder when it is asked.

``faulthandler`` writes them from the signal's handler in C, also while the rank is blocked in a collective. The signal
is a real-time one that nobody handles; the outside looks at the process's mask of handled signals before it sends it.
"""
import os
import signal

_file = None  # kept open: the handler writes to its descriptor


def install(folder, rank):
    """(signal number, file name in the run's folder), or (None, None) where it cannot be."""
    global _file
    if not folder or not hasattr(signal, "SIGRTMAX"):
        return None, None
    try:
        import faulthandler

        number = next((n for n in range(signal.SIGRTMAX - 2, signal.SIGRTMIN + 8, -1)
                       if signal.getsignal(n) == signal.SIG_DFL), None)
        if number is None:
            return None, None
        name = f"stacks-rank{rank}-{os.getpid()}.txt"
        _file = open(os.path.join(folder, name), "ab", buffering=0)
        faulthandler.register(number, file=_file, all_threads=False, chain=False)
        return number, name
    except Exception:
        return None, None
