"""`python -m lowtide ...`: replaces this process by the lowtide binary, which runs scripts with this interpreter."""
import os
import sys
import sysconfig


def find_binary():
    """Path of the binary: beside the interpreter's scripts (an installed wheel), or in bin/ (a developer's tree)."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "lowtide")
    installed = os.path.join(sysconfig.get_path("scripts"), "lowtide")
    for path in (here, installed):
        if os.access(path, os.X_OK):
            return path
    sys.exit("lowtide: the lowtide binary is missing; reinstall the package")


if __name__ == "__main__":
    os.environ.setdefault("LOWTIDE_PYTHON", sys.executable)
    os.execv(find_binary(), ["lowtide", *sys.argv[1:]])
