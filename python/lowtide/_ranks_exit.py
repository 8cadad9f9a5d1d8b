"""The last moment of a process whose ranks talk by gloo.

A work that a backward began carries Python objects of the thread that began it (PyTorch's ThreadLocalState). The thread
of gloo that executed it lets go of them, and takes the interpreter's lock for that. When it still waits for the lock while
the interpreter is being taken down, Python before 3.14 ends the thread by pthread_exit, inside a destructor: the process
ends with SIGABRT. That is a race of PyTorch's own. Here gloo's threads are given the lock, for as long as they need it,
before the interpreter ends; mostly all of them are idle and nothing is waited for.
"""
import os
import time

THREAD = "pt_gloo_runloop"  # as ProcessGroupGloo calls its threads
PATIENCE = 0.2              # seconds: a collective that never ends keeps its thread busy
FUTEX_WAIT_BITSET = 9       # how glibc waits for a condition variable


def idle(system_call):
    """Whether a thread waits for a condition variable without a limit of time, as between two works. The wait for the
    interpreter's lock has one. ``system_call`` is the text of /proc/self/task/<tid>/syscall."""
    words = system_call.split()
    return len(words) > 5 and int(words[2], 16) & 0x7F == FUTEX_WAIT_BITSET and int(words[4], 16) == 0


def _read(thread, name):
    with open(f"/proc/self/task/{thread}/{name}", encoding="ascii", errors="replace") as file:
        return file.read()


def _busy(thread):
    try:
        return not idle(_read(thread, "syscall"))
    except (OSError, ValueError):  # it is gone, or this kernel does not tell
        return False


def let_go():
    """Returns once no thread of gloo has anything left to do, or after PATIENCE seconds."""
    threads = [thread for thread in os.listdir("/proc/self/task") if _read(thread, "comm").strip() == THREAD]
    until = time.monotonic() + PATIENCE
    while any(_busy(thread) for thread in threads) and time.monotonic() < until:
        time.sleep(0.0005)  # without the interpreter's lock
