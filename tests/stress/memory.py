"""Memory of the proxy's workers over rounds of mixed load: what each part of it takes, and that it comes back.

    .venv/bin/python -m stress.memory --queue afxdp --rounds 5        (in tests/; needs root: it raises a lab)
    .venv/bin/python -m stress.memory --queue afxdp --minutes 60 --results memory.jsonl

A round: processes that attach one after the other and at once, each with many connections, bulk both ways, TLS
handshakes and data, datagrams, listeners that are served, and connections whose peers stop reading; some are killed in
the middle. Meanwhile one process stays, and uses its connections all the time.

After each round it waits until what the round had is closed. Exit status 1: memory was not flat from the second round
on (`growth()`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from beds.authority import Authority
from beds.patience import SLOWER
from xts_lab.lab import Lab
from xts_proxy.status.control_socket import workers_pid

PROGRAM = str(Path(__file__).with_name("memory_load.py"))
NET, DEVICE = "198.18.0.2", "198.18.0.1"
AT_ONCE = 4
QUIET_S = 35.0
#: What may lie between the quiet times after any two rounds from the second one on: pages of Python's and of libraries
#: that are used for the first time, and blocks of malloc's of which a few bytes are in use.
GROWTH_BYTES = 1 << 20


def part_of(name: str) -> str:
    """What a mapping is for."""
    if "xts-umem" in name or "xts-shm" in name or name.startswith("socket:"):
        return "queues"
    if name == "[heap]" or not name:
        return "heap"
    if name.startswith("["):
        return "stacks"
    return "files" if name.startswith("/") else name


@dataclass(frozen=True)
class Sample:
    """Memory of a process at one time, in bytes: resident, by part."""

    resident: dict[str, int]
    descriptors: int

    @property
    def total(self) -> int:
        return sum(self.resident.values())

    @property
    def own(self) -> int:
        """Without queues, which live as long as their processes or the proxy."""
        return self.total - self.queues

    @property
    def queues(self) -> int:
        return self.resident.get("queues", 0)

    @classmethod
    def take(cls, pid: int) -> Sample:
        resident: dict[str, int] = defaultdict(int)
        part = ""
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            words = line.split(None, 5)
            if "-" in words[0] and not words[0].endswith(":"):
                part = part_of(words[5].strip() if len(words) > 5 else "")
            elif words[0] == "Rss:":
                resident[part] += int(words[1]) * 1024
        return cls(dict(resident), len(list(Path(f"/proc/{pid}/fd").iterdir())))

    def __str__(self) -> str:
        parts = ", ".join(f"{part} {size / 1e6:.1f}" for part, size in sorted(self.resident.items()))
        return f"{self.total / 1e6:.1f} MB ({parts}), {self.descriptors} descriptors"


class Bed:
    """A lab, and the peer of all its connections."""

    def __init__(self, lab: Lab, certificate: str) -> None:
        self.lab = lab
        self.pid = workers_pid(str(lab.directory / "proxy.sock"))
        command = [sys.executable, PROGRAM, "peer", certificate]
        self.peer = lab.popen("net", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.peer.stdout is not None
        self.ports = self.peer.stdout.readline().split()
        self.steady: subprocess.Popen[str] | None = None

    def close(self) -> None:
        if self.steady:
            self.steady.kill()
            self.steady.communicate()
        self.peer.kill()
        self.peer.communicate()

    def start(self, kind: str) -> subprocess.Popen[str]:
        command = [sys.executable, PROGRAM, "host", NET, *self.ports, kind]
        return self.lab.popen("host", command, stdout=subprocess.PIPE, text=True)

    def stay(self) -> None:
        """A process that is there from now on, and is busy."""
        self.steady = self.start("steady")
        assert self.steady.stdout is not None
        assert self.steady.stdout.readline() == "busy\n"

    def visit(self, process: subprocess.Popen[str]) -> None:
        """Connects to the listener of a process."""
        assert process.stdout is not None and self.peer.stdin is not None and self.peer.stdout is not None
        print(DEVICE, process.stdout.readline().strip(), file=self.peer.stdin, flush=True)
        assert self.peer.stdout.readline() == "done\n"

    def end(self, process: subprocess.Popen[str], kind: str) -> None:
        process.communicate(timeout=100 * SLOWER)
        assert process.returncode == (-9 if kind == "killed" else 0), (kind, process.returncode)

    def round(self, at_once: int = AT_ONCE) -> None:
        for kinds in (["clean"], ["killed"], ["clean", "killed"] * (at_once // 2)):
            processes = [(self.start(kind), kind) for kind in kinds]
            for process, _ in processes:
                self.visit(process)
            for process, kind in processes:
                self.end(process, kind)

    def sample(self, descriptors: int = 0, own_bytes: int = 0) -> Sample:
        """When so few descriptors are left, and memory has come down so far; or as it is in the end."""
        deadline = time.monotonic() + QUIET_S
        while True:
            sample = Sample.take(self.pid)
            if (sample.descriptors <= descriptors and sample.own <= own_bytes) or time.monotonic() > deadline:
                return sample
            time.sleep(0.2)


@contextmanager
def bed(queue: str, name: str, queues: int = 8) -> Iterator[Bed]:
    """A lab of its own, raised and taken down."""
    authority = Authority()
    with tempfile.TemporaryDirectory() as folder:
        issued = authority.issue("localhost")
        certificate = Path(folder) / "server.pem"
        certificate.write_bytes(issued.key + issued.certificate)
        roots = Path(folder) / "roots.pem"
        roots.write_bytes(authority.certificate)
        tables = f'[[tls.trust]]\nname = "lab"\nfile = "{roots}"\n'
        with Lab(name, queue=queue, queues=queues, tables=tables, relayed_max=0) as lab:
            made = Bed(lab, str(certificate))
            try:
                yield made
            finally:
                made.close()


def growth(quiet: Sequence[int]) -> str:
    """Of bytes after each round: why they are not flat from the second one on; "": they are. One round may have found
    something that was not closed yet: growth is what the last two had more than the second, both of them."""
    if len(quiet) < 3:
        return ""
    grown = min(quiet[2:][-2:]) - quiet[1]
    if grown <= GROWTH_BYTES:
        return ""
    return f"{grown / 1e6:.1f} MB more after round {len(quiet)} than after round 2; {GROWTH_BYTES / 1e6:.1f} may be"


def rounds(made: Bed, most: int, seconds: float) -> Iterator[tuple[int, float, Sample, Sample]]:
    """Number, when it was over, and memory at its end and when all was closed: so many rounds, or as long as that."""
    start = Sample.take(made.pid)
    begin = time.monotonic()
    wanted = start.own
    number = 0
    while number < most or time.monotonic() - begin < seconds:
        number += 1
        made.round()
        loaded = Sample.take(made.pid)
        quiet = made.sample(start.descriptors, wanted)
        wanted = max(wanted, quiet.own)
        yield number, time.monotonic() - begin, loaded, quiet


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queue", choices=["afxdp", "shm"], default="shm")
    parser.add_argument("--rounds", type=int, default=0, help="at least so many (default: 4, or as --minutes says)")
    parser.add_argument("--minutes", type=float, default=0.0, help="goes on for so long")
    parser.add_argument("--results", type=Path, help="a line of JSON for each round is added here")
    arguments = parser.parse_args()
    most = arguments.rounds or (0 if arguments.minutes else 4)
    after: list[int] = []
    with bed(arguments.queue, "memory" + arguments.queue) as made:
        print("start", Sample.take(made.pid), flush=True)
        made.stay()
        print("one stays", Sample.take(made.pid), flush=True)
        for number, seconds, loaded, quiet in rounds(made, most, 60 * arguments.minutes):
            after.append(quiet.own)
            print(f"round {number} ({seconds / 60:.1f} minutes)", loaded, flush=True)
            print("    quiet", quiet, flush=True)
            if arguments.results:
                row = {"round": number, "seconds": seconds, "loaded": loaded.resident, "quiet": quiet.resident}
                with arguments.results.open("a") as stream:
                    stream.write(json.dumps(row | {"queue": arguments.queue, "descriptors": quiet.descriptors}) + "\n")
        assert made.steady and made.steady.poll() is None, "the process that stays has ended"
    found = growth(after)
    print(found or f"flat: {len(after)} rounds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
