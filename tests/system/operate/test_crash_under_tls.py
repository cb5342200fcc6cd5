"""The workers' process dies by a signal, and connections with TLS in the proxy go on, as client and as server, with no
wrong byte and no number used twice (PROTOCOL.md, "Crash"; dpu_proxy/native/ulp/tls/tls_kept.h)."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import ssl
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import cast

import pytest
from beds import process_tree
from beds.crashes import (
    AUTHORITY,
    ISSUED,
    KINDS,
    LISTENERS,
    SIGNALS,
    Crashing,
    Kept,
    Program,
    Tap,
    carry,
    crashing,
    program,
    use,
)
from beds.dialogues import peer_address
from beds.noise import Noise
from beds.operated_proxy import wait
from beds.ready import readable
from beds.ulp_tls import VERSIONS, client_context, server_context, updates_keys
from beds.without_memfd_secret import UNDER

#: Of a record: type, version, length.
HEAD, NONCE_BYTES, CHANGE_CIPHER_SPEC = struct.Struct(">BHH"), 8, 20


@contextmanager
def with_tls(
    kind: str, version: ssl.TLSVersion, idle: int, under: Sequence[str] = ()
) -> Iterator[tuple[Crashing, Program]]:
    peer = server_context(ISSUED, minimum_version=version, maximum_version=version)
    with crashing(kind, under=under) as bed, program(bed.place, idle, peer) as on:
        yield bed, on


def accepted(bed: Crashing, on: Program, version: ssl.TLSVersion) -> list[socket.socket]:
    """One of each listener of the program, which is the server."""
    client = client_context(AUTHORITY.certificate, minimum_version=version, maximum_version=version)
    made = [client.wrap_socket(bed.place.connect(port, 10), server_hostname="localhost") for port in on.ports]
    said = on.does("accept")
    assert said["without"] == []
    return list(made)


@VERSIONS
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_at_rest_goes_on(kind: str, version: ssl.TLSVersion, crashes: int = 4, idle: int = 30) -> None:
    """As client and as server; those that are made between crashes, too."""
    with with_tls(kind, version, idle) as (bed, on), ExitStack() as stack:
        assert on.does("use")["failures"] == []
        peers: list[socket.socket] = []
        for number in range(crashes):
            peers += [stack.enter_context(one) for one in accepted(bed, on, version)]
            assert use(on, peers)["failures"] == []
            bed.crash(SIGNALS[number % 2])
            assert use(on, peers) == {"failures": [], "used": idle + len(peers)}
        assert len(peers) == crashes * LISTENERS
        assert sum(worker["torn"] for worker in bed.status()["workers"]) == 0


PROCESSES = ("xts-workers", "xts-keys")


@pytest.mark.parametrize("names", [PROCESSES, PROCESSES[::-1]])
def test_the_process_with_the_keys_dies_as_well(names: tuple[str, str], idle: int = 5) -> None:
    """The supervisor hears of both ends at once."""
    version = ssl.TLSVersion.TLSv1_3
    with with_tls("shm", version, idle) as (bed, on), ExitStack() as stack:
        pids = [process_tree.one(bed.pid, name) for name in names]
        os.kill(bed.pid, signal.SIGSTOP)
        for pid in pids:
            ended = os.pidfd_open(pid)
            os.kill(pid, signal.SIGKILL)
            assert readable(ended, 10)
            os.close(ended)
        os.kill(bed.pid, signal.SIGCONT)
        assert use(on, []) == {"failures": [], "used": idle}
        peers = [stack.enter_context(one) for one in accepted(bed, on, version)]
        assert use(on, peers) == {"failures": [], "used": idle + len(peers)}
        assert "Traceback" not in (bed.place.directory / "log").read_text()


READER = """
import hashlib, sys, threading
import xts_socket as socket
from xts_socket import Tls
def connected():
    return socket.create_connection((sys.argv[1], int(sys.argv[2])), tls=Tls(server_hostname="localhost"))
connection, idle = connected(), connected()
threading.Thread(target=idle.recv, args=(1,), daemon=True).start()  # the library has a thread while we wait for input
print("connected", flush=True)
for line in sys.stdin:
    left, seen = int(line), hashlib.sha256()
    while left and (data := connection.recv(left)):
        seen.update(data)
        left -= len(data)
    connection.sendall(seen.digest())
    if int(line) == 0:
        tls = connection.tls
        print(len(tls.getpeercert(True)), tls.cipher(), tls.verified, tls.version(), flush=True)
"""


@VERSIONS
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_read_ahead_and_keys_that_have_changed(kind: str, version: ssl.TLSVersion) -> None:
    """The program reads a part of what has come, of a record too, and the rest after the crash. In TLS 1.3 its peer
    takes other keys before each piece, and asks for others. What is known of the connection is as before."""
    context = server_context(ISSUED, minimum_version=version, maximum_version=version)
    with crashing(kind) as bed, ExitStack() as stack:
        with bed.place.network():
            server = stack.enter_context(socket.create_server(("", 0)))
        arguments = ["-c", READER, peer_address(bed.place), str(server.getsockname()[1])]
        process = stack.enter_context(bed.place.program(arguments, interposed=False))
        assert process.stdin
        assert process.stdout
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)  # for all that is not read yet
        accepting = (context.wrap_socket(server.accept()[0], server_side=True) for _ in range(2))
        peer, _ = (stack.enter_context(one) for one in accepting)
        peer.settimeout(10)
        assert process.stdout.readline() == "connected\n"
        known = set()
        for number in range(4):
            data = random.Random(number).randbytes(500_000)
            if version == ssl.TLSVersion.TLSv1_3:
                updates_keys(cast(ssl.SSLObject, peer), asks=True)
            peer.sendall(data)
            for piece in (data[:70_001], data[70_001:], b""):
                if len(piece) > 70_001:
                    bed.crash(SIGNALS[number % 2])
                process.stdin.write(f"{len(piece)}\n")
                process.stdin.flush()
                assert peer.recv(32) == hashlib.sha256(piece).digest()
            known.add(process.stdout.readline())
        assert len(known) == 1
        assert sum(worker["torn"] for worker in bed.status()["workers"]) == 0


def nonces(stream: bytes) -> list[bytes]:
    """Those that the encrypted records of a client of TLS 1.2 with AES-GCM carry, in their order (RFC 5288 3)."""
    found, at, encrypted = [], 0, False
    while len(stream) - at >= HEAD.size + NONCE_BYTES:
        kind, _, length = HEAD.unpack_from(stream, at)
        if encrypted:
            found.append(stream[at + HEAD.size : at + HEAD.size + NONCE_BYTES])
        encrypted = encrypted or kind == CHANGE_CIPHER_SPEC
        at += HEAD.size + length
    return found


def test_no_nonce_is_used_twice() -> None:
    """On the wire, in all that is sent under one key by all processes that have it. In TLS 1.3 a record's number is its
    place in the stream: one that is used twice, or left out, ends the connection, which the other tests see."""
    version = ssl.TLSVersion.TLSv1_2
    peer = server_context(ISSUED, minimum_version=version, maximum_version=version)
    peer.set_ciphers("ECDHE+AESGCM")
    with crashing("shm") as bed:
        tap, kept = Tap(bed.place), Kept()
        with program(bed.place, 5, peer, tap) as on:
            carry(kept, bed, on, 6)
            assert on.does("use")["failures"] == []
        assert kept.share("busy") >= 0.9
    sent = [nonces(bytes(stream)) for stream in tap.streams]
    assert max(map(len, sent)) > 1000
    for one in sent:
        numbers = [int.from_bytes(nonce, "big") for nonce in one]
        assert numbers == [(numbers[0] + index) % (1 << 64) for index in range(len(numbers))]


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_process_dies_as_well(kind: str, idle: int = 60) -> None:
    """Before its host has claimed its connections, or while it does so: these go on, or are reset."""
    with with_tls(kind, ssl.TLSVersion.TLSv1_3, idle) as (bed, on):
        assert on.does("use")["failures"] == []
        with on.stopped():
            bed.crash(SIGNALS[0])
            wait(lambda: bed.status()["proxy"]["crashes"]["sockets"] >= idle, "the next process")
            bed.crash(SIGNALS[0])
        assert on.does("use") == {"failures": [], "used": idle}


@pytest.mark.root
@VERSIONS
def test_what_a_dead_process_has_left_is_not_believed(version: ssl.TLSVersion, rounds: int = 5) -> None:
    """A connection goes on as it should, or ends. The next process does not die of it."""
    noise = Noise(33)
    with with_tls("shm", version, 30, UNDER) as (bed, on):
        for _ in range(rounds):
            bed.crash(signal.SIGKILL, before=noise.write)
            said = on.does("use")
            assert set(said["failures"]) <= {"ECONNRESET", "EPIPE", "ECONNABORTED", "EPROTO", "EBADMSG"}, said
            on.does("renew")
        logged = "".join(file.read_text() for file in bed.control.parent.glob("*log*"))
        assert logged.count("xts-workers: killed by SIGKILL") == rounds, logged
        assert logged.count("xts-workers: ") == rounds, logged  # by nothing else


@pytest.mark.root
@VERSIONS
@pytest.mark.parametrize("index", range(4))
def test_a_count_is_another_one(version: ssl.TLSVersion, index: int) -> None:
    """Of what it has delivered nobody else knows, for the kernel counts records. A byte would seem to be
    missing, and be looked for in what was read last."""
    noise, found = Noise(33), []
    with with_tls("shm", version, 1, UNDER) as (bed, on):
        assert on.does("use")["failures"] == []
        bed.crash(signal.SIGKILL, before=lambda pid: found.append(noise.count(pid, 3000, index)))
        said = on.does("use")
        assert set(said["failures"]) <= {"ECONNRESET", "EPIPE", "ECONNABORTED", "EPROTO", "EBADMSG"}, said
    assert found == [True]


def crash_under_load(kind: str, version: ssl.TLSVersion, crashes: int) -> Kept:
    kept = Kept()
    with with_tls(kind, version, 10) as (bed, on):
        carry(kept, bed, on, crashes)
        kept.note("idle", 10, on.does("use")["failures"])
    return kept


@VERSIONS
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_busy_goes_on(kind: str, version: ssl.TLSVersion) -> None:
    kept = crash_under_load(kind, version, 6)
    assert not [end for ends in kept.ended.values() for end in ends if "wrong" in end], kept
    assert kept.share("idle") == 1.0
    # Of one connection a record was being made when a worker that always runs was killed.
    assert kept.share("busy") >= 0.85, kept
    assert kept.share("under way") >= 0.7, kept
