"""Two processes have a connection, and the one that uses it sends, and ends, while the proxy's workers are dead. What
it has sent arrives; then comes an end, if the other one does not have it any more, and else that one goes on
(PROTOCOL.md, "Crash"; dpu_proxy/native/processes/heard.h)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.crashes import KINDS, Crashing, crashing
from beds.dialogues import peer_address
from beds.operated_proxy import wait
from beds.patience import SLOWER
from beds.ready import readable
from beds.restarts import Place

PROGRAM = Path(__file__).with_name("programs") / "last_words_in_common.py"
SENT = b"0123456789" * 500
PATIENCE_S = 20.0
#: How long the end may take where who attaches processes has to look for it, and to say so; else it is 60 s.
END_S = 30.0 * SLOWER
#: What a child does behind its last send, and what its parent does; what the peer gets behind what the child has sent.
ENDS = {
    "exits and closed": b"",
    "closes and closed": b"",
    "is killed and closed": b"",
    "is killed and killed": b"",
}
GOES_ON = {
    "exits and killed": b"",
    "exits and sleeps": b"more",
    "is killed and sleeps": b"more",
    "shuts and sleeps": b"",
}


class Pairs:
    """The processes, and the peers of their connections."""

    def __init__(self, process: subprocess.Popen[str], server: socket.socket, count: int) -> None:
        self._process = process
        server.settimeout(PATIENCE_S)
        self.peers = [server.accept()[0] for _ in range(count)]
        self._heard("connected")
        for peer in self.peers:
            peer.settimeout(PATIENCE_S)
            assert peer.recv(5, socket.MSG_WAITALL) == b"begun"

    def _heard(self, what: str) -> None:
        assert self._process.stdout
        assert readable(self._process.stdout, 2 * PATIENCE_S), what
        assert self._process.stdout.readline() == f"{what}\n"

    def says(self, what: str) -> None:
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._heard(what)


@contextmanager
def pairs(place: Place, ways: dict[str, bytes]) -> Iterator[Pairs]:
    with place.network():
        server = socket.create_server((peer_address(place), 0), backlog=64)
    with server:
        arguments = [str(PROGRAM), peer_address(place), str(server.getsockname()[1]), ",".join(ways)]
        with place.program(arguments) as process:
            made = Pairs(process, server, len(ways))
            yield made
            for peer in made.peers:
                peer.close()


def what_came(peer: socket.socket, behind: bytes) -> str:
    """ "right", or how it differs."""
    came = b""
    try:
        while len(came) < len(SENT + behind):
            more = peer.recv(1 << 16)
            if not more:
                return f"an end after {len(came)}"
            came += more
        if came != SENT + behind:
            return f"other bytes: {came[-20:]!r}"
        if behind:
            return "right"
        peer.settimeout(END_S)
        return "right" if peer.recv(1) == b"" else "more"
    except OSError as error:
        return f"{error!r} after {len(came)}"


#: The child sends what its peer does not read, as much as is taken, and ends. With a line its parent sends, too.
FILLS = """
import os, select, socket, sys, time
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
piece = bytes(range(251)) * 256
if os.fork() == 0:
    connection.setblocking(False)
    sent, until = 0, time.monotonic() + 0.5
    while time.monotonic() < until:
        try:
            sent += connection.send(piece[sent % 251:])
            until = time.monotonic() + 0.5
        except BlockingIOError:
            select.select([], [connection], [], 0.05)
    print(sent, flush=True)
    os._exit(0)
os.wait()
print("ended", flush=True)
sys.stdin.readline()
connection.setblocking(True)
connection.sendall(b"more")
print("more", flush=True)
sys.stdin.readline()
"""


def parked(where: Crashing) -> int:
    return sum(int(one["parked_connections"]) for one in where.status()["workers"])


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    assert readable(process.stdout, 2 * PATIENCE_S)
    return process.stdout.readline().rstrip("\n")


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_for_a_slow_peer_when_nobody_holds_it(kind: str) -> None:
    """One process has ended, and the other does not use it, when the workers die."""
    with crashing(kind) as where:
        with where.place.network():
            server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.bind((peer_address(where.place), 0))
        server.listen()
        arguments = ["-c", FILLS, peer_address(where.place), str(server.getsockname()[1])]
        with server, where.place.program(arguments) as process, server.accept()[0] as peer:
            peer.settimeout(PATIENCE_S)
            sent = int(line(process))
            assert line(process) == "ended"
            wait(lambda: parked(where) == 1, "a connection that nobody holds")
            where.crash(signal.SIGKILL)
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
            came = bytearray()
            while len(came) < sent + 4 and (data := peer.recv(1 << 18)):
                came += data
            piece = bytes(range(251))
            assert bytes(came) == (piece * (sent // 251 + 1))[:sent] + b"more", len(came)
            assert line(process) == "more"


@pytest.mark.parametrize("ways", [ENDS, GOES_ON], ids=["ends", "goes on"])
@pytest.mark.parametrize("kind", KINDS)
def test_in_a_crash(kind: str, ways: dict[str, bytes]) -> None:
    """The workers are stopped meanwhile, and then die, so that they see nothing of it."""
    with crashing(kind) as where, pairs(where.place, ways) as left:
        where.crash(signal.SIGKILL, lambda _: left.says("left"))
        left.says("more")
        began = time.monotonic()
        found = {way: what_came(peer, ways[way]) for way, peer in zip(ways, left.peers, strict=True)}
        assert found == dict.fromkeys(ways, "right"), f"after {time.monotonic() - began:.1f} s"


@pytest.mark.parametrize("kind", KINDS[1:])
def test_the_agent_says_it_when_the_next_workers_serve(kind: str) -> None:
    """It finds later what nobody has any more, or could not say it before: epochs of the dead workers count then."""
    with crashing(kind) as where, pairs(where.place, ENDS) as left:
        agent = where.place.lab.records()["agent"].pid  # type: ignore[attr-defined]
        os.kill(agent, signal.SIGSTOP)
        try:
            where.crash(signal.SIGKILL, lambda _: left.says("left"))
            wait(lambda: where.status()["proxy"]["crashes"]["count"] == 1, "the next workers")
            if kind == "relay":  # it says HELLO by itself
                wait(lambda: any(row["link_state"] == "up" for row in where.status()["channels"]), "the trunk")
        finally:
            os.kill(agent, signal.SIGCONT)
        left.says("more")
        found = {way: what_came(peer, ENDS[way]) for way, peer in zip(ENDS, left.peers, strict=True)}
        assert found == dict.fromkeys(ENDS, "right")


def up(where: Crashing) -> int:
    return sum(row["link_state"] == "up" for row in where.status()["channels"])


@pytest.mark.parametrize("kind", KINDS[1:])
def test_their_epochs_had_ended_before(kind: str) -> None:
    """All processes of a connection are killed. The workers hear of their end, and die before the agent has said that
    nobody has it any more. Another process of the tenant goes on."""
    ways = {"is killed and killed": b"", "exits and sleeps": b"more"}
    with crashing(kind) as where, pairs(where.place, ways) as left:
        before = up(where)
        left.says("left")
        wait(lambda: up(where) <= before - 3, "the ends of three processes")
        where.crash(signal.SIGKILL)
        left.says("more")
        found = {way: what_came(peer, ways[way]) for way, peer in zip(ways, left.peers, strict=True)}
        assert found == dict.fromkeys(ways, "right")
