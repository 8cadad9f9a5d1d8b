"""A small file system, for what happens when it is full."""
import contextlib
import subprocess

import pytest


@contextlib.contextmanager
def small_disk(place, size):
    """Mounts a file system of ``size`` (as mount's tmpfs takes it) at the new folder ``place``."""
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no right to mount a small file system: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
