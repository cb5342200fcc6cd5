"""The workers' process dies while bytes wait in its spill buffers, for their peers read slowly. No byte is lost
(PROTOCOL.md, "Crash"; dpu_proxy/native/processes/parked_spilled.c)."""

from __future__ import annotations

import hashlib
import random
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from beds.crashes import ISSUED, KINDS, SIGNALS, Crashing, crashing
from beds.dialogues import peer_address
from beds.operated_proxy import wait
from beds.ready import readable
from beds.ulp_tls import server_context

TLS = [None, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
#: More than the kernel's buffers at both ends, the credits, and the host's own take.
SENT_BYTES = 24 << 20

SENDER = """
import hashlib, os, sys, threading
import xts_socket as socket
from xts_socket import Tls
how = {"tls": Tls(server_hostname="localhost")} if sys.argv[3] == "tls" else {}
connections = [socket.create_connection((sys.argv[1], int(sys.argv[2])), **how) for _ in range(int(sys.argv[4]))]
data = [os.urandom(int(sys.argv[5])) for _ in connections]
def send(connection, data):
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
senders = [threading.Thread(target=send, args=both) for both in zip(connections, data)]
for sender in senders:
    sender.start()
print(*(hashlib.sha256(one).hexdigest() for one in data), flush=True)
for sender in senders:
    sender.join()
print("sent", flush=True)
sys.stdin.read()
"""


@contextmanager
def sending(
    bed: Crashing, version: ssl.TLSVersion | None, count: int
) -> Iterator[tuple[list[socket.socket], set[str]]]:
    """A program that sends on so many connections: their peers, of which none reads, and hashes of what it sends."""
    context = server_context(ISSUED, minimum_version=version, maximum_version=version) if version else None
    with ExitStack() as stack:
        with bed.place.network():
            server = stack.enter_context(socket.create_server(("", 0)))
        port = str(server.getsockname()[1])
        arguments = ["-c", SENDER, peer_address(bed.place), port, "tls" if version else "", str(count), str(SENT_BYTES)]
        process = stack.enter_context(bed.place.program(arguments, interposed=False))
        assert process.stdout
        peers = []
        for _ in range(count):
            peer = stack.enter_context(server.accept()[0])
            peers.append(stack.enter_context(context.wrap_socket(peer, server_side=True)) if context else peer)
            peers[-1].settimeout(20)
        assert readable(process.stdout, 10)
        yield peers, set(process.stdout.readline().split())
        assert readable(process.stdout, 10)
        assert process.stdout.readline() == "sent\n"


def spilled(bed: Crashing) -> int:
    return sum(worker["spill_bytes"] for worker in bed.status()["workers"])


def all_go_on(bed: Crashing, count: int) -> None:
    """Returns when the program has claimed them."""
    wait(lambda: sum(worker["resumed"] for worker in bed.status()["workers"]) == count, "connections that go on", 20)


def rests(bed: Crashing) -> None:
    """Returns when bytes wait, and nothing moves any more."""
    seen = [0]

    def at_rest() -> bool:
        seen.append(spilled(bed))
        return len(seen) > 3 and seen[-1] > 0 and len(set(seen[-3:])) == 1

    wait(at_rest, "bytes that wait for TCP", 20)


@pytest.mark.parametrize("version", TLS, ids=["plain", "TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_for_slow_peers_arrives(kind: str, version: ssl.TLSVersion | None) -> None:
    """Crashes before the peers have read anything, twice in a row, and in between. Not before the host has claimed what
    the last one has left: that is reset (PROTOCOL.md, "Crash")."""
    with crashing(kind) as bed, sending(bed, version, 2) as (peers, sent):
        rests(bed)
        for number in range(2):
            bed.crash(SIGNALS[number])
            all_go_on(bed, len(peers))
            rests(bed)
        seen = [hashlib.sha256() for _ in peers]
        came = [0 for _ in peers]
        chance, crashes = random.Random(5), 0 if version else 3  # of TLS a record may be being made
        while min(came) < SENT_BYTES:
            for number, peer in enumerate(peers):
                data = peer.recv(1 << 18) if came[number] < SENT_BYTES else b""
                assert data or came[number] == SENT_BYTES, "an end in the middle"
                seen[number].update(data)
                came[number] += len(data)
            if crashes and chance.random() < 0.02:
                crashes -= 1
                all_go_on(bed, len(peers))
                bed.crash(signal.SIGKILL)
        assert {one.hexdigest() for one in seen} == sent
        assert sum(worker["torn"] for worker in bed.status()["workers"]) == 0
