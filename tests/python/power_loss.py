"""What a machine that loses power may leave of a folder, from the recorded calls of a program that wrote into it.

The model is the weakest that POSIX allows (ALICE: Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014):

- data of a file that was written after its last fsync or fdatasync may be there, absent, or torn, block by block, and the
  file's size may be the old one or the new one;
- a creation, rename or removal in the folder after the folder's last fsync may have happened or not, each on its own.

``states(calls)`` yields (number of calls made, {name: bytes}) for every prefix of the calls.
"""
import itertools
import random

BLOCK = 4096


def read_calls(path):
    """[(op, name, other, offset, data)] as the preloaded shim wrote them."""
    with open(path, "rb") as file:
        text = file.read()
    calls, at = [], 0
    while at < len(text):
        end = text.index(b"\0", at)
        op, offset, size, name = text[at:end].decode().split(" ", 3)
        other_end = text.index(b"\0", end + 1)
        data = text[other_end + 1:other_end + 1 + int(size)]
        calls.append((op, name, text[end + 1:other_end].decode(), int(offset), data))
        at = other_end + 1 + int(size)
    return calls


class File:
    """One inode: what is durable, and what was done since."""

    def __init__(self):
        self.durable = b""
        self.pending = []  # (offset, data) of one block each, or (size, None)

    def write(self, offset, data):
        at = 0
        while at < len(data):
            room = BLOCK - (offset + at) % BLOCK
            self.pending.append((offset + at, data[at:at + room]))
            at += room

    def resize(self, size):
        self.pending.append((size, None))

    def current(self, skip=(), torn=()):
        """All of it; without the pending pieces `skip`, and with only the first half of the pieces `torn`."""
        out = bytearray(self.durable)
        for number, (offset, data) in enumerate(self.pending):
            if number in skip:
                continue
            if data is None:
                out = out[:offset] + bytes(max(0, offset - len(out)))
                continue
            data = data[:len(data) // 2] if number in torn else data
            out += bytes(max(0, offset + len(data) - len(out)))
            out[offset:offset + len(data)] = data
        return bytes(out)

    def sync(self):
        self.durable, self.pending = self.current(), []

    def crashes(self, dice):
        """Contents that a crash may leave, without repetitions."""
        count = len(self.pending)
        everything = range(count)
        out = [self.current(), self.durable]
        for number in everything:
            out += [self.current(skip={number}), self.current(torn={number}), self.current(skip=set(everything) - {number}),
                    self.current(skip=set(range(number)))]
        # The size is there and the data is not: zeros.
        out.append(self.current(skip={n for n in everything if self.pending[n][1] is not None}))
        for _ in range(4 if count > 1 else 0):
            out.append(self.current(skip={n for n in everything if dice.random() < 0.5}, torn={n for n in everything if dice.random() < 0.3}))
        return list(dict.fromkeys(out))


class Folder:
    def __init__(self):
        self.durable = {}   # name -> File
        self.pending = []   # (op, name, other, File)
        self.now = {}

    def apply(self, call):
        op, name, other, offset, data = call
        if op == "create":
            if name not in self.now:
                self.now[name] = File()
                self.pending.append(("add", name, "", self.now[name]))
            elif other == "truncate":
                self.now[name].resize(0)
        elif op == "rename":
            self.pending.append(("rename", name, other, self.now[name]))
            self.now[other] = self.now.pop(name)
        elif op == "unlink":
            self.pending.append(("remove", name, "", self.now.pop(name)))
        elif op == "sync" and name == ".":
            self.durable, self.pending = dict(self.now), []
        else:
            file = self.now[name]
            if op == "sync":
                file.sync()
            elif op == "write":
                file.write(offset, data)
            elif op == "append":
                file.write(len(file.current()), data)
            elif op in ("truncate", "allocate"):
                file.resize(offset if op == "truncate" else max(offset, len(file.current())))
            else:
                raise AssertionError(f"unknown call {op}")

    def listings(self):
        """Every set of entries that a crash may leave."""
        seen = []
        for chosen in itertools.product((True, False), repeat=len(self.pending)):
            entries = dict(self.durable)
            for happened, (op, name, other, file) in zip(chosen, self.pending):
                if not happened:
                    continue
                if op == "add":
                    entries[name] = file
                elif op == "rename":
                    entries.pop(name, None)
                    entries[other] = file
                else:
                    entries.pop(name, None)
            if entries not in seen:
                seen.append(entries)
        return seen


def states(calls, seed=0):
    folder, dice = Folder(), random.Random(seed)
    for made in range(len(calls) + 1):
        if made:
            folder.apply(calls[made - 1])
        for entries in folder.listings():
            whole = {name: file.current() for name, file in entries.items()}
            yield made, whole
            for name, file in entries.items():
                for content in file.crashes(dice):
                    if content != whole[name]:
                        yield made, {**whole, name: content}
            yield made, {name: file.durable for name, file in entries.items()}
