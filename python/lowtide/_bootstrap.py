"""Starts the recorder in a process of a recorded run, once torch is imported. Never raises, never prints.

What it is told comes from the environment, set by ``lowtide run``:

    LOWTIDE_RUN_DIR     the run's folder (absolute); without it nothing happens
    LOWTIDE_STEPS       end the script after this many steps
    LOWTIDE_CENSUS      0: answer no request for a census
    LOWTIDE_GRADIENTS   0: do not watch gradients
    LOWTIDE_RANKS       0: do not watch what ranks do together
    LOWTIDE_SHM_DIR     where ring files lie while the run lives (/dev/shm); empty: in the run's folder
    LOWTIDE_MARKS       0: no hooks, only ``lowtide.step()`` counts
    LOWTIDE_FORCE_TABLE 1: remember block sizes in a table (to try the fallback)

``census_hooks`` are called, ``hook(number)``, on the training thread at the step boundary after the outside asked for a
census; without any, ``lowtide._census`` is looked for. A hook that returns a function is called again at the step boundary
where that function says True.
"""
import atexit
import os
import sys
import time

census_hooks = []
track = None           # the extension module once it records
is_worker = False      # a DataLoader's process: it is looked at from outside and never writes
_is_child = False      # forked from a recorded process
_stepped = False
_exit_noted = False

ROLE_TRAINER, ROLE_LAUNCHER, ROLE_WORKER = 1, 2, 3
EXIT_CLEAN, EXIT_EXCEPTION, EXIT_STOPPED = 1, 2, 3
EVENT_OOM, EVENT_EXCEPTION, EVENT_STOP = 1, 2, 6


class StopRun(SystemExit):
    """Ends the script at a step boundary, as asked for; unwinds like any exit."""


def wait_for(spec):
    """Arranges that ``start`` runs when the module of ``spec`` has been executed, with no frame of its own in between."""
    from lowtide import _track

    loader = spec.loader
    loader.exec_module = _track.Marked(loader.exec_module, None, lambda token, ok, *args: _loaded(loader, ok))


def _loaded(loader, ok):
    del loader.exec_module
    if ok:
        start()


def shm_prefix(directory):
    """How the run's files in /dev/shm begin: FNV-1a of the folder's real path, the host, and which /dev/shm it is (as
    include/lowtide/record/shm_name.h has it)."""
    value = 14695981039346656037
    for byte in os.fsencode(os.path.realpath(directory)):
        value = (value ^ byte) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    try:
        device = os.stat("/dev/shm").st_dev
    except OSError:
        device = 0
    return f"lowtide-{value:016x}-{host_name()}~{device:x}-"


def host_name():
    """This machine's name as it stands in names of files."""
    plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-"
    return "".join(c if c in plain else "_" for c in os.uname().nodename[:32])


def start():
    """Hooks the allocator and sets the marks. True when this process records."""
    global track
    directory = os.environ.get("LOWTIDE_RUN_DIR")
    if not directory or track is not None:
        return track is not None
    try:
        from lowtide import _track

        failure = _track.start(
            directory, shm_directory=os.environ.get("LOWTIDE_SHM_DIR", "/dev/shm"), shm_prefix=shm_prefix(directory),
            python_version=sys.version.split()[0], torch_version=_torch_version(), script=_script(),
            force_table=os.environ.get("LOWTIDE_FORCE_TABLE") == "1")
        if failure:
            return _trouble(directory, f"the recorder did not start: {os.strerror(failure)}")
        track = _track
        _open_at_once(directory)
        steps = os.environ.get("LOWTIDE_STEPS", "")
        if steps.isdigit():
            _track.stop_at(int(steps))
        os.register_at_fork(after_in_child=_after_fork)
        atexit.register(at_exit)
        if os.environ.get("LOWTIDE_MARKS") != "0":
            from lowtide import _marks

            _marks.install()
        _watch_gradients()
        return True
    except Exception as error:
        return _trouble(directory, f"{type(error).__name__}: {error}")


def _torch_version():
    return str(getattr(sys.modules.get("torch"), "__version__", ""))


def _script():
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and getattr(spec, "name", None):
        return "-m " + spec.name
    return str(getattr(main, "__file__", "") or (sys.argv[0] if getattr(sys, "argv", None) else ""))


def in_multiprocessing_child():
    """Whether multiprocessing made this process; what it is for shows only when it trains."""
    words = getattr(sys, "orig_argv", sys.argv)
    if "--multiprocessing-fork" in words or any("multiprocessing.forkserver" in word for word in words):
        return True
    module = sys.modules.get("multiprocessing.process")
    return module is not None and module.parent_process() is not None


def _open_at_once(directory):
    # Children of multiprocessing are mostly DataLoader workers: they get a file when they step.
    if in_multiprocessing_child():
        return
    failure = track.open_file()
    if failure:
        _trouble(directory, f"no ring file could be made: {os.strerror(failure)}")
    rank, local_rank, world = rank_from_environment()
    if rank is not None and not _is_launcher():
        track.set_rank(rank, local_rank, world)


def _trouble(directory, text):
    """Leaves a line for the outside half, which says what was not recorded."""
    try:
        with open(os.path.join(directory, f"trouble-{os.getpid()}.txt"), "a", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError:
        pass
    return False


def _watch_gradients():
    try:
        from lowtide import _autoguard

        _autoguard.install()
    except Exception:
        track.lose_mark()


# -- who this process is --------------------------------------------------------------------------------------------

def _number(*names):
    for name in names:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return None


def rank_from_environment():
    """(rank, local rank, world size) as the launchers say it: torchrun, SLURM, MPI; None where it is not said."""
    world = _number("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    local = _number("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
    rank = _number("RANK")
    if rank is None and (world or 0) > 1:
        rank = _number("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
    return rank, local, world


def _rank():
    """The same once it trains: the process group knows best, and a child of multiprocessing has a number."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), _number("LOCAL_RANK"), distributed.get_world_size()
    except Exception:
        pass
    rank, local, world = rank_from_environment()
    if rank is None and in_multiprocessing_child():
        identity = getattr(sys.modules["multiprocessing.process"].current_process(), "_identity", ())
        rank = identity[-1] - 1 if identity else None
    return rank if rank is not None else 0, local, world


def _is_launcher():
    return any(name in sys.modules for name in ("torch.distributed.run", "torch.distributed.launch")) or any(
        word in _script() for word in ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate"))


# -- what the recorder answers to a step ------------------------------------------------------------------------------

def answer(bits):
    """Bits of a step that asked for something: a name and a file (2), a census (4), the end (8), a device's size (16), the loop
    around it (32)."""
    if bits & 32:
        _look_at_loop()
    if bits & 2:
        _first_step()
    if bits & 16:
        from lowtide import _devices

        _devices.describe()
    if bits & 4:
        _census()
    if bits & 8:
        _stop()


def _look_at_loop():
    from lowtide import _marks

    if track.wants(_marks.LOADER) or not track.wants(_marks.OPTIMIZER):
        return  # what ends a step goes round with the loop, or is what the user calls a step
    try:
        from lowtide import _loop

        _loop.look(_marks.state)
    except Exception:
        track.lose_mark()


def _first_step():
    global is_worker, _stepped
    from lowtide import _devices

    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        is_worker = True
        return
    _stepped = True
    failure = track.open_file()
    if failure:
        _trouble(os.environ["LOWTIDE_RUN_DIR"], f"no ring file could be made: {os.strerror(failure)}")
    who = _rank()
    track.set_rank(*who)
    track.set_role(ROLE_TRAINER)
    _devices.watch_silent()
    if (who[2] or 0) > 1 and os.environ.get("LOWTIDE_MARKS") != "0":
        from lowtide import _ranks

        _ranks.alone()
    if in_multiprocessing_child():  # such processes leave without running atexit's functions
        from multiprocessing.util import Finalize

        Finalize(None, at_exit, exitpriority=-1000)


_waiting = []  # (hook, ready) of a census whose arithmetic goes on beside the training; ready() says when that is over


def _census():
    if not all(_is_over(ready) for _, ready in _waiting):
        return
    number, begun, status = track.census_request(), time.monotonic_ns(), 0
    census = sys.modules.get("lowtide._census")
    track.census_begins(*(census.census.taken_beside() if census is not None else ()))
    if os.environ.get("LOWTIDE_CENSUS") == "0" or is_worker:
        status = -1
    else:
        hooks = [hook for hook, _ in _waiting] or census_hooks or _default_census()
        _waiting.clear()
        status = 0 if hooks else -1
        for hook in hooks:
            try:
                ready = hook(number)
                if callable(ready):
                    _waiting.append((hook, ready))
            except Exception:
                status = -2
    if _waiting:
        track.census_paused(time.monotonic_ns() - begun)
    else:
        track.census_done(number, time.monotonic_ns() - begun, status)


def _is_over(ready):
    try:
        return ready()
    except Exception:
        return True  # the hook will say what is wrong


def _default_census():
    """The first request remembers what is alive, the second names what appeared since and stayed: of a large process in
    two pauses, with the arithmetic between them beside the training."""
    try:
        from lowtide._census import census, first, write
    except ImportError:
        return []

    def take(number):
        if number == 1:
            first(track.figures()["step"])
            return None
        waiting = census.begin(track.figures()["step"]) if census.pending is None else census.finish()
        if not waiting:
            write(os.environ["LOWTIDE_RUN_DIR"])
        return waiting

    return [take]


def _stop():
    """The script is to end here: by its own GracefulExit, which saves first, where it has one and memory is the reason;
    else by SystemExit, with 143 (as after SIGTERM) when nobody asked for so many steps."""
    if is_worker:
        return
    why = ("asked", "memory", "leak")[min(track.take_stop(), 2)]
    leaving = sys.modules.get("lowtide.exit")
    if why != "asked" and leaving is not None and leaving.ask(why):
        return
    _look_again()
    code = 0 if why == "asked" else 143
    track.event(EVENT_STOP, code, None, "asked to end at this step" if code == 0 else f"ended before memory runs out: {why}")
    note_exit(EXIT_STOPPED, code)
    raise StopRun(code)


def _look_again():
    """Who holds what grew, while the script's functions still have their variables."""
    census = sys.modules.get("lowtide._census")
    try:
        if census is not None:
            census.last_chance()
    except Exception:
        pass


# -- the end ----------------------------------------------------------------------------------------------------------

def note_exit(state, code):
    global _exit_noted
    if not _exit_noted:
        _exit_noted = True
        track.exit(state, code)


def at_exit():
    """atexit: how the script ended, and what this process was if it never trained."""
    try:
        ranks = sys.modules.get("lowtide._ranks")
        if ranks is not None:
            ranks.at_exit()
        if not _stepped and not is_worker and track.figures()["step"] == 0 and _is_launcher():
            track.set_role(ROLE_LAUNCHER)
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is None:
            return note_exit(EXIT_CLEAN, 0)
        text = f"{type(error).__name__}: {error}"
        track.event(EVENT_OOM if _is_oom(error) else EVENT_EXCEPTION, 0, None, text[:63])
        note_exit(EXIT_EXCEPTION, 1)
    except Exception:
        pass


def _is_oom(error):
    name, text = type(error).__name__, str(error)
    return isinstance(error, MemoryError) or name == "OutOfMemoryError" or "can't allocate memory" in text or (
        "out of memory" in text)


def _after_fork():
    global _is_child, _stepped, _exit_noted, is_worker
    _is_child, _stepped, _exit_noted, is_worker = True, False, False, False
    _waiting.clear()
    for name in ("lowtide._marks", "lowtide._loop", "lowtide._ranks", "lowtide._census"):
        module = sys.modules.get(name)
        if module is not None:
            module.after_fork()
