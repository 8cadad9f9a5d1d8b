"""A second reader of ring files, written from docs/file-format.md: what it reads must be what the format says."""
import pathlib
import struct

ABSENT = -(1 << 63)
STEPS, DEVICES, WORKERS, MARKS, EVENTS, SERIES, DEVICE_SERIES, SHARDS, POOLS, WORKER_TABLE = range(10)
STEP_FIELDS = ("step mono_ns cpu_bytes cpu_peak_bytes heap_bytes python_blocks rss_bytes shared_bytes shm_used_bytes "
               "shm_tensor_bytes cpu_blocks fds phase source epoch data_wait_us own_us collective_wait_us reserved").split()


class RingFile:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        data = self.data = self.path.read_bytes()
        assert data[:8] == b"LOWTIDE\n", path
        version, self.header_bytes, self.file_bytes, ready, count = struct.unpack_from("<IIQII", data, 8)
        assert version == 1 and ready == 1 and len(data) == self.file_bytes
        self.sections = [struct.unpack_from("<QQIIQ", data, 32 + 32 * i) for i in range(count)]
        self.pid, self.parent_pid, self.rank, self.local_rank, self.world_size, self.role = struct.unpack_from("<6i", data, 544)
        self.start_wall_ns, self.start_mono_ns, self.capabilities = struct.unpack_from("<qqQ", data, 568)
        self.exit_state, self.exit_code, self.exit_mono_ns, self.last_step = struct.unpack_from("<iiqQ", data, 624)
        self.source = data[652]
        self.python, self.torch = self._text(1680, 32), self._text(1712, 48)
        self.script, self.hooks = self._text(1824, 512), self._text(2336, 1024)
        (self.foreign_frees, self.untracked, self.lost_blocks, self.lost_devices, self.lost_marks, self.lost_workers,
         self.ooms, self.own_ns) = struct.unpack_from("<8Q", data, 3488)

    def loop(self):
        """(steps, iterations, place)"""
        return *struct.unpack_from("<2Q", self.data, 3616), self._text(3632, 64)

    def _text(self, at, size):
        return self.data[at:at + size].split(b"\0")[0].decode()

    def records(self, section, layout):
        """Payloads of a ring's whole slots, in order."""
        offset, _, entry, count, head = self.sections[section]
        for number in range(max(0, head - count), head):
            at = offset + number % count * entry
            sequence, _, kind, size = struct.unpack_from("<QIHH", self.data, at)
            if sequence == 2 * number + 2 and kind == section:
                assert size == entry - 16
                yield struct.unpack_from(layout, self.data, at + 16)

    def steps(self):
        return [dict(zip(STEP_FIELDS, row)) for row in self.records(STEPS, "<Q10qiBBHIIII")]

    def marks(self):
        """(kind, edge, step, value, text)"""
        return [(kind, edge, step, value, text.split(b"\0")[0].decode())
                for step, _, kind, edge, _, value, text in self.records(MARKS, "<QqHHIq80s")]

    def events(self):
        """(kind, step, code, text)"""
        return [(kind, step, code, text.split(b"\0")[0].decode())
                for step, _, kind, _, code, _, _, _, text in self.records(EVENTS, "<QqHHiqqq64s")]

    def workers(self):
        offset, _, entry, count, _ = self.sections[WORKER_TABLE]
        rows = [struct.unpack_from("<iIII", self.data, offset + i * entry) for i in range(count)]
        return [row for row in rows if row[0] > 0]

    def worker_samples(self):
        """(step, pid, RssAnon, minor faults)"""
        return [(row[0], row[2], row[5], row[8]) for row in self.records(WORKERS, "<Qqii4qQiIII4q")]


def rings(folder):
    """{file name: RingFile} of a run's folder."""
    return {path.name: RingFile(path) for path in sorted(pathlib.Path(folder).glob("*.ring"))}
