"""Other bytes in memory that the workers of a proxy leave to those that go on when they have died."""

from __future__ import annotations

import mmap
import random
import resource
import struct
from pathlib import Path
from typing import IO

from xts_proxy.config.config_limits import DESCRIPTORS_MAX


class Noise:
    """What a worker that was broken into might have left: other bytes in what the next process reads of connections."""

    LOOKED_AT, LINE_BYTES, LASTING_BYTES = 256 << 10, 128, 1 << 30

    def __init__(self, seed: int) -> None:
        self._drawn = random.Random(seed)

    def write(self, pid: int) -> None:
        """Into the memory of a process that is stopped."""
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            for begin in self._shared(pid):
                self._into(memory, begin)
        for file in self._keys(pid):
            with file.open("r+b", buffering=0) as memory:
                self._into(memory, 0)

    def count(self, pid: int, value: int, index: int) -> bool:
        """One more, in place of a count with this value in what is known of connections with TLS: of all that have it,
        this one. False: it has not so many."""
        for file in self._keys(pid):
            with file.open("r+b", buffering=0) as memory:
                words = struct.iter_unpack("=Q", memory.read(self.LOOKED_AT) or b"")
                found = [at for at, (word,) in enumerate(words) if word == value]
                if index < len(found):
                    memory.seek(8 * found[index])
                    memory.write(struct.pack("=Q", value + 1))
                    return True
                index -= len(found)
        return False

    @staticmethod
    def _keys(pid: int) -> list[Path]:
        """The memory for keys, unless it is of memfd_secret, which nobody can open."""
        return [file for file in Path(f"/proc/{pid}/fd").iterdir() if "memfd:xts-keys" in str(file.readlink())]

    def _shared(self, pid: int) -> list[int]:
        """Where the ledger's lines are, and what is lasting (proc_pid_maps(5))."""
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        places = [line.split()[0].split("-") for line in lines if "rw-s" in line and "/dev/zero" in line]
        bytes_of = {int(begin, 16): int(end, 16) - int(begin, 16) for begin, end in places}
        of_lines = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], DESCRIPTORS_MAX) * self.LINE_BYTES
        sizes = (self.LASTING_BYTES, -(-of_lines // mmap.PAGESIZE) * mmap.PAGESIZE)
        found = [begin for begin, size in bytes_of.items() if size in sizes]
        assert len(found) == len(sizes)
        return found

    def _into(self, memory: IO[bytes], begin: int) -> None:
        memory.seek(begin)
        used = [at for at, byte in enumerate(memory.read(self.LOOKED_AT) or b"") if byte]
        for at in self._drawn.sample(used, min(len(used), self._drawn.choice((1, 10, len(used) // 100 + 1)))):
            memory.seek(begin + at)
            memory.write(bytes([self._drawn.randrange(256)]))
