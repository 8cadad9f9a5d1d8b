"""Found by every interpreter that a recorded run starts (its PYTHONPATH names this folder).

Does nothing but leave an import hook that wakes up when torch is imported, take its own folder out of sys.path, and run
the sitecustomize that it shadows. A process that never imports torch pays for this file alone.
"""
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


class _WhenTorchComes:
    """First on sys.meta_path: lets every import pass, but arranges that lowtide starts once torch is there."""

    def find_spec(self, name, path=None, target=None):
        if name == "lowtide":
            return _lowtide_spec()
        if name != "torch":
            return None
        try:
            sys.meta_path.remove(self)
            sys.meta_path.append(_LOWTIDE)
            spec = _found_by_others(name, path, target)
            if spec is not None and spec.loader is not None:
                from lowtide import _bootstrap

                _bootstrap.wait_for(spec)
            return spec
        except Exception:  # whatever it is, torch must be imported as it would have been
            return None


def _found_by_others(name, path, target):
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        spec = find(name, path, target) if find is not None else None
        if spec is not None:
            return spec
    return None


class _LowtideComes:
    """Last on sys.meta_path: `import lowtide` works in a recorded run also where it is not installed."""

    def find_spec(self, name, path=None, target=None):
        return _lowtide_spec() if name == "lowtide" else None


_LOWTIDE = _LowtideComes()


def _lowtide_spec():
    import importlib.util

    package = os.path.dirname(_HERE)
    return importlib.util.spec_from_file_location("lowtide", os.path.join(package, "__init__.py"),
                                                  submodule_search_locations=[package])


def _forget_folder():
    sys.path[:] = [entry for entry in sys.path if not _is_here(entry)]


def _is_here(entry):
    try:
        return bool(entry) and os.path.abspath(entry) == _HERE
    except Exception:
        return False


def _run_shadowed():
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_forget_folder()
if os.environ.get("LOWTIDE_RUN_DIR"):
    sys.meta_path.insert(0, _WhenTorchComes())
_run_shadowed()
