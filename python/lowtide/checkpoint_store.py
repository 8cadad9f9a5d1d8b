"""A folder of checkpoints: who may write into it, what is committed in it, what is thrown away.

    step-000000001000.safetensors            one process
    step-000000001000/                       several: rank-00000.safetensors ..., manifest.json, renamed into place as a whole
    .tmp-...                                 never read; removed by the next writer

What has its final name is committed: it was durable before it was renamed. A checkpoint is removed only after newer ones
are durable, and `keep` committed ones always stay.
"""
import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
import time

from lowtide import _guard
from lowtide.checkpoint_file import CheckpointError, Reader, verify_file

SUFFIX = ".safetensors"
MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{12})(\.safetensors)?")


def file_name(step):
    return f"step-{step:012d}{SUFFIX}"


def folder_name(step):
    return f"step-{step:012d}"


def rank_file(rank):
    return f"rank-{rank:05d}{SUFFIX}"


class Lock:
    """One writer per folder, as long as the process lives: the kernel frees the lock when it dies."""

    def __init__(self, folder):
        self.path = os.path.join(folder, ".lock")
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._fd, 200, 0).decode("utf-8", "replace").strip() or "another process"
            os.close(self._fd)
            self._fd = -1
            raise CheckpointError(f"{folder} is being written to by {owner}\n"
                                  "  help: stop that run, or give this one another folder") from None
        with contextlib.suppress(OSError):  # who we are is a courtesy
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self):
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Entry:
    """One committed checkpoint of a folder."""

    def __init__(self, path, step):
        self.path, self.step = path, step
        self.sharded = os.path.isdir(path)

    def __repr__(self):
        return f"<checkpoint of step {self.step}: {self.path}>"

    def bytes(self):
        if not self.sharded:
            return os.path.getsize(self.path)
        return sum(os.path.getsize(os.path.join(root, f)) for root, _, files in os.walk(self.path) for f in files)

    def file_of(self, rank):
        return os.path.join(self.path, rank_file(rank)) if self.sharded else self.path

    def manifest(self):
        return read_manifest(self.path) if self.sharded else None

    def verify(self):
        """Reads everything; raises :class:`CheckpointError` that says what is damaged."""
        if not self.sharded:
            verify_file(self.path)
            return
        manifest = self.manifest()
        for item in manifest["files"]:
            path = os.path.join(self.path, item["name"])
            if item["name"].endswith(SUFFIX) and not item.get("plain"):
                check_member(path, item, verify=True)
            else:
                check_plain(path, item)


def read_manifest(folder):
    """The manifest of a checkpoint of several files, checked against its own checksum."""
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, "rb") as file:
            text = file.read(1 << 26)
        manifest = json.loads(text)
        body = manifest.pop("crc32c")
        good = body == _guard.crc32c_bytes(_canonical(manifest))
        names = [item["name"] for item in manifest["files"]]
        good = good and isinstance(manifest["step"], int) and isinstance(manifest["world"], int)
        good = good and all(type(n) is str and not os.path.isabs(n) and ".." not in n.split("/") for n in names)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        good = False
    if not good:
        raise CheckpointError(f"{path}: the manifest is damaged\n  help: use an older checkpoint")
    return manifest


def _canonical(manifest):
    return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()


def write_manifest(folder, manifest):
    manifest = {**manifest, "crc32c": _guard.crc32c_bytes(_canonical(manifest))}
    write_durably(os.path.join(folder, MANIFEST), json.dumps(manifest, indent=1).encode())


def write_durably(path, data):
    temporary = f"{path}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view):]
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)
    _guard.sync_folder(os.path.dirname(path))


def check_member(path, item, verify=False):
    """A rank's file is the one that the manifest speaks of."""
    if verify:
        verify_file(path)
    with Reader(path) as reader:
        if (reader.bytes, reader.header_crc, reader.nonce.hex()) != (item["bytes"], item["header_crc"], item["nonce"]):
            raise CheckpointError(f"{path}: belongs to another save than its manifest\n  help: use an older checkpoint")


def file_crc(path):
    """CRC-32C and size of any file."""
    import mmap

    size = os.path.getsize(path)
    if size == 0:
        return 0, 0
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _guard.crc32c_bytes(data), size


def check_plain(path, item):
    try:
        found = file_crc(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    if found != (item["crc32c"], item["bytes"]):
        raise CheckpointError(f"{path}: differs from what was written\n  help: use an older checkpoint")


def entries(folder):
    """Committed checkpoints, oldest first."""
    out = []
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            match = _NAME.fullmatch(name)
            path = os.path.join(folder, name)
            if match and (match.group(2) is not None) != os.path.isdir(path):
                out.append(Entry(path, int(match.group(1))))
    return sorted(out, key=lambda entry: (entry.step, entry.path))


def clean(folder):
    """Removes what interrupted saves left; only the owner of the lock may."""
    for name in os.listdir(folder):
        if name.startswith((".tmp-", ".old-")):
            remove(os.path.join(folder, name))


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):  # gone already, or a stale handle of a network file system
            os.unlink(path)


def purge(folder, keep):
    """Removes all but the newest `keep` committed checkpoints. Folders are renamed away first, so that what is half
    removed never looks committed."""
    for entry in entries(folder)[:-keep] if keep > 0 else []:
        if entry.sharded:
            away = os.path.join(folder, f".old-{os.path.basename(entry.path)}-{os.getpid()}")
            try:
                os.rename(entry.path, away)
            except OSError:
                continue
            remove(away)
        else:
            remove(entry.path)


def wait_for(ready, seconds, what):
    """Polls `ready()` (a value or None) with growing pauses; CheckpointError when the time is up."""
    deadline, pause = time.monotonic() + seconds, 0.002
    while True:
        value = ready()
        if value is not None:
            return value
        if time.monotonic() > deadline:
            raise CheckpointError(f"waited {seconds:.0f} s for {what}")
        time.sleep(pause)
        pause = min(0.2, pause * 1.5)
