"""An interpreter for which the object walk was not built is refused with a message, not walked."""
import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("lowtide._walk", reason="the extension lowtide._walk is not built for this interpreter")
import lowtide  # noqa: E402

OTHER_VERSION = 'const char* Py_GetVersion(void) { return "3.99.0 (of another day)"; }'
IMPORT = "from lowtide import _walk"
SAY = "from lowtide import _census; print(_census.census.first(0), _census.census.trouble)"


@pytest.fixture
def other_version(tmp_path):
    """Environment in which the interpreter says that it is another one."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler to make an interpreter of another version with")
    source = tmp_path / "version.c"
    source.write_text(OTHER_VERSION)
    library = tmp_path / "version.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    package = os.path.dirname(os.path.dirname(lowtide.__file__))
    environment = dict(os.environ, LD_PRELOAD=str(library), PYTHONPATH=package)
    shown = subprocess.run([sys.executable, "-c", "import ctypes; f = ctypes.pythonapi.Py_GetVersion; "
                            "f.restype = ctypes.c_char_p; print(f())"], env=environment, capture_output=True, text=True)
    if "3.99" not in shown.stdout:
        pytest.skip("this interpreter is one file and cannot be made to say that it is another version")
    return environment


def test_the_extension_refuses_to_load(other_version):
    done = subprocess.run([sys.executable, "-c", IMPORT], env=other_version, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "the object walk was built for another version of Python" in done.stderr


def test_a_run_goes_on_without_a_census(other_version):
    done = subprocess.run([sys.executable, "-c", SAY], env=other_version, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False ") and "built for another version" in done.stdout
