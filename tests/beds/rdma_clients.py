"""Unmodified programs behind an agent over RDMA (rdma_products.py), and which processes serve them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from beds.patience import SLOWER
from beds.rdma_products import PATIENCE_S, Products
from beds.ready import readable

CLIENT = str(Path(__file__).parents[1] / "vm/programs/plain_client.py")
NOBODY = 65534
HASH_BYTES = 64
Echo = tuple[int, int]


class Program:
    """An unmodified program, offloaded over RDMA, that says a line for what it has done, and reads one to go on."""

    def __init__(self, both: Products, *words: str, user: int = NOBODY) -> None:
        self.both = both
        self.process = both.run(sys.executable, *words, user=user, stdin=subprocess.PIPE)

    def line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline().strip() if readable(self.process.stdout, PATIENCE_S) else ""
        if not line:
            self.process.kill()
            raise AssertionError(self.process.communicate(timeout=12 * SLOWER)[1] + self.both.log_of_both())
        return line

    def go_on(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ends(self) -> None:
        told = self.process.communicate(timeout=24 * SLOWER)[1]
        assert self.process.returncode == 0, told + self.both.log_of_both()


class Client(Program):
    """plain_client.py."""

    def __init__(self, both: Products, echo: Echo, size: int = 100_000, then: str = "end", user: int = NOBODY) -> None:
        super().__init__(both, CLIENT, str(echo[0]), str(size), then, user=user)

    def hashed(self) -> None:
        """Its next exchange was whole."""
        assert len(self.line()) == HASH_BYTES


def echoes(both: Products, echo: Echo) -> None:
    """A new program is served, by the proxy's worker."""
    before = trunk_bytes(both)
    client = Client(both, echo, 100_000)
    client.hashed()
    client.ends()
    assert trunk_bytes(both) >= before + 100_000


def trunk_bytes(both: Products) -> int:
    """How many bytes of frames have come over RDMA, by the connections that there are."""
    return sum(int(row["queue"]["rx_bytes"]) for row in both.status()["channels"] if not row["relayed"])


def processes(name: str) -> list[int]:
    """All of this name, in this machine."""
    found = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text().strip() == name:
                found.append(int(comm.parent.name))
        except OSError:
            continue
    return found
