"""What a sender may write before EAGAIN, and a peer send ahead, is within a factor of two of the kernel's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from xts_lab.lab import Lab

PROGRAM = str(Path(__file__).with_name("programs") / "buffer_end.py")
NET = "198.18.0.2"
ADDRESSES = {"kern": "198.18.1.2", "host": "198.18.0.1"}
FACTOR = 2.0
SIZES = [0, 16 << 10, 64 << 10, 1 << 20]


class End:
    """A process with one end of connections."""

    def __init__(self, lab: Lab, role: str) -> None:
        command = [*(["xts", "run", "--strict", "--"] if role == "host" else []), sys.executable, PROGRAM]
        self.process = lab.popen(role, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def put(self, *command: Any) -> None:
        assert self.process.stdin is not None
        print(json.dumps(command), file=self.process.stdin, flush=True)

    def get(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __call__(self, *command: Any) -> Any:
        self.put(*command)
        return self.get()

    def end(self) -> None:
        self.process.communicate(timeout=10)


@dataclass(frozen=True, slots=True)
class World:
    """The same program on the kernel and offloaded, and a peer for each."""

    programs: dict[str, tuple[End, End]]

    def pair(self, role: str, size: int, serves: bool) -> tuple[End, int, End, int]:
        """Program and peer, connected, SO_SNDBUF and SO_RCVBUF of the program set to size."""
        program, peer = self.programs[role]
        if serves:
            listener, port = program("listen", ADDRESSES[role], size, size)
            theirs = peer("connect", ADDRESSES[role], port, 0, 0)
            return program, program("accept", listener), peer, theirs
        listener, port = peer("listen", NET, 0, 0)
        ours = program("connect", NET, port, size, size)
        return program, ours, peer, peer("accept", listener)


@pytest.fixture(scope="module")
def world(lab: Lab) -> Iterator[World]:
    programs = {role: (End(lab, role), End(lab, "net")) for role in ("kern", "host")}
    yield World(programs)
    for pair in programs.values():
        for end in pair:
            end.end()


def close(kernel: int, ours: int, most: float = FACTOR) -> bool:
    return kernel / FACTOR <= ours <= kernel * most


@pytest.mark.parametrize("serves", [False, True], ids=["client", "server"])
@pytest.mark.parametrize("size", SIZES)
def test_a_sender_whose_peer_does_not_read(world: World, size: int, serves: bool) -> None:
    pairs = {role: world.pair(role, size, serves) for role in ("kern", "host")}
    taken, sizes = {}, {}
    for program, ours, _, _ in pairs.values():
        program.put("fill", ours, 65536)
    for role, (program, _, _, _) in pairs.items():
        taken[role] = program.get()
    for role, (program, ours, _, _) in pairs.items():
        sizes[role] = program("sizes", ours)
    kern, host = taken["kern"], taken["host"]
    assert close(kern["all"], host["all"]), taken
    if size != 16 << 10:  # which an untried connection of the kernel's exceeds fourfold
        assert host["first"] >= kern["first"] / FACTOR, taken
    # What has not been acknowledged, as SIOCOUTQ tells, includes what waits on the way to TCP.
    assert close(kern["outq"], host["outq"]), taken
    if size:
        assert sizes["kern"] == sizes["host"] == [2 * size, 2 * size]


def test_small_writes(world: World) -> None:
    taken = {}
    for role in ("kern", "host"):
        program, ours, _, _ = world.pair(role, 0, False)
        taken[role] = program("fill", ours, 1024)
    assert close(taken["kern"]["all"], taken["host"]["all"]), taken
    assert taken["host"]["first"] >= taken["kern"]["first"] / FACTOR, taken


@pytest.mark.parametrize("chunk_bytes", [1024, 65536])
@pytest.mark.parametrize("size", SIZES)
def test_a_peer_of_who_does_not_read(world: World, size: int, chunk_bytes: int) -> None:
    ahead = {}
    pairs = {role: world.pair(role, size, size != 0) for role in ("kern", "host")}
    for _, _, peer, theirs in pairs.values():
        peer.put("fill", theirs, chunk_bytes)
    for role, (_, _, peer, _) in pairs.items():
        filled = peer.get()
        ahead[role] = filled["all"] - filled["outq"]
    assert close(ahead["kern"], ahead["host"]), ahead


def test_a_smaller_buffer_of_a_connection_in_use(world: World) -> None:
    """The window follows SO_SNDBUF, by and by, and nothing hangs."""
    program, ours, peer, theirs = world.pair("host", 0, False)
    taken = {}
    for size in (16 << 10, 1 << 20, 4 << 10):
        program("resize", ours, size)
        for amount in (1 << 20, 100):
            peer.put("take", theirs, amount)
            assert program("send", ours, amount) == amount
            assert peer.get() == amount
        taken[size] = program("fill", ours, 4096)
        peer("take", theirs, taken[size]["all"])
    assert taken[4 << 10]["outq"] < taken[16 << 10]["outq"] < taken[1 << 20]["outq"] / 8, taken
